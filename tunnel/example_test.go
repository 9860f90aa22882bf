package tunnel_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/causewayproject/causeway/tunnel"
)

// A server, an agent that enrols with it, and a dial through both.
func Example() {
	authority, err := tunnel.NewAuthority() // keep its PEM: the agents trust it
	if err != nil {
		log.Fatal(err)
	}
	connected := make(chan struct{}, 1)
	server := &tunnel.Server{Authority: authority, Hooks: tunnel.Hooks{
		Connected: func(tunnel.SessionInfo) { connected <- struct{}{} },
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()

	// Beside the cluster: an agent that was handed an invitation.
	invitation, err := server.Invite(ctx, "default/prod", 0)
	if err != nil {
		log.Fatal(err)
	}
	api := exampleTarget()
	agent := &tunnel.Agent{
		Servers:     []string{listener.Addr().String()},
		Credentials: &tunnel.MemoryCredentials{}, // FileStore in a program
		Invitation:  func(context.Context) (tunnel.Invitation, error) { return invitation, nil },
		Targets:     tunnel.Targets{Aliases: map[string]string{"kubernetes.default.svc:443": api.Addr().String()}},
	}
	ran := make(chan error, 1)
	go func() { ran <- agent.Run(ctx) }()
	<-connected

	conn, err := server.Dialer("default/prod").DialContext(ctx, "tcp", "kubernetes.default.svc:443")
	if err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	fmt.Println(string(text), err)
	fmt.Println(conn.RemoteAddr())
	conn.Close()
	_, err = server.Dialer("default/prod").DialContext(ctx, "tcp", "10.0.0.1:22")
	fmt.Println(err)

	cancel() // drains
	fmt.Println(<-served, <-ran)
	api.Close()
	// Output:
	// hello from the API server <nil>
	// default/prod|kubernetes.default.svc:443
	// tunnel: dial default/prod 10.0.0.1:22: the agent's policy does not allow the target
	// <nil> <nil>
}

// exampleTarget greets one client.
func exampleTarget() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(conn, "hello from the API server")
		conn.Close()
	}()
	return l
}
