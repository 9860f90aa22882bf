// Tunnel reaches an API server through the tunnel of an agent: a server, an agent that
// enrols with it, and a request through both, in one process and without flags.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"

	"github.com/causewayproject/causeway/tunnel"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel() // server and agent let open streams end, and return

	// Beside the controllers: the server.
	authority, err := tunnel.NewAuthority() // keep its PEM: the agents trust it
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	connected := make(chan struct{})
	first := sync.OnceFunc(func() { close(connected) })
	server := &tunnel.Server{Authority: authority, Hooks: tunnel.Hooks{Connected: func(tunnel.SessionInfo) { first() }}}
	running.Go(func() { server.Serve(ctx, listener) })

	// A person carries the invitation to the cluster. It is a secret, good for one agent.
	invitation, err := server.Invite(ctx, "default/prod", 0)
	if err != nil {
		return err
	}
	invitation.Servers = []string{listener.Addr().String()}

	// In the cluster: an API server, and the agent, which dials out to the server. The
	// agent decides what may be reached, and under which names.
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "v1.36.0") }))
	defer api.Close()
	agent := &tunnel.Agent{
		Credentials: &tunnel.MemoryCredentials{}, // FileStore in a program
		Invitation:  func(context.Context) (tunnel.Invitation, error) { return invitation, nil },
		Targets:     tunnel.Targets{Aliases: map[string]string{"kubernetes.default.svc:80": api.Listener.Addr().String()}},
	}
	running.Go(func() { agent.Run(ctx) })
	<-connected

	// A client takes the tunnel's dial function. The name is the agent's to resolve.
	transport := &http.Transport{DialContext: server.Dialer("default/prod").DialContext}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("http://kubernetes.default.svc/version")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	version, err := io.ReadAll(answer.Body)
	fmt.Fprintf(w, "default/prod: the API server is %s\n", version)
	if err != nil {
		return err
	}
	_, err = transport.DialContext(ctx, "tcp", "10.0.0.1:22")
	fmt.Fprintln(w, err)
	return nil
}
