package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel"
)

type agentInput struct {
	Invitation   string // the text form
	Dir          string // of the credentials
	Proxy        []hop  // on the way to the server
	WebSocketCA  []byte // of a wss server
	Allow        []string
	Aliases      map[string]string
	KeepAlive    tunnel.KeepAlive
	FirstBackoff time.Duration
	// AuthorizedKeys is the file that takes the payload of the name
	// authorized_keys.
	AuthorizedKeys string
}

// agentRole runs an agent until SIGTERM, and tells line by line what it does.
func agentRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input agentInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("agent role: input: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	through, err := dialerThrough(input.Proxy...)
	if err != nil {
		return err
	}
	a := &tunnel.Agent{
		Credentials:  tunnel.FileStore{Dir: input.Dir},
		Invitation:   func(context.Context) (tunnel.Invitation, error) { return tunnel.ParseInvitation(input.Invitation) },
		Targets:      tunnel.Targets{Allow: input.Allow, Aliases: input.Aliases},
		KeepAlive:    input.KeepAlive,
		FirstBackoff: input.FirstBackoff,
		Payload:      func(_ context.Context, p tunnel.Payload) error { return input.take(p) },
		Program:      "e2e",
		Hooks:        tellingHooks(out),
	}
	if through != nil {
		a.Dial = through.DialContext
	}
	if input.WebSocketCA != nil {
		a.WebSocketTLS = proxyTLS(input.WebSocketCA)
	}
	return a.Run(ctx)
}

// take is what examples of the library would do with an SSH public key.
func (input *agentInput) take(p tunnel.Payload) error {
	if input.AuthorizedKeys == "" || p.Name != "authorized_keys" {
		return fmt.Errorf("no use for a payload %q", p.Name)
	}
	return os.WriteFile(input.AuthorizedKeys, p.Data, 0o600) // the file is there, with its owner
}

func tellingHooks(out io.Writer) tunnel.AgentHooks {
	var mu sync.Mutex // one line after the other
	tell := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
	}
	return tunnel.AgentHooks{
		Connected:    func(server string, id tunnel.Identity) { tell("connected %s as %s", server, id) },
		Disconnected: func(server string, err error) { tell("disconnected %s: %v", server, err) },
		Enrolled:     func(id tunnel.Identity, _ time.Time) { tell("enrolled as %s", id) },
		Failed: func(server string, err error, retry time.Duration) {
			var refusal *dialer.Refusal
			if errors.As(err, &refusal) {
				tell("refused with status %d", refusal.StatusCode)
			}
			tell("failed %s: %v; again in %v", server, err, retry)
		},
	}
}

// The targets of the tunnels that lead to no API server.
const (
	echoTarget   = "127.0.0.1:7"
	sinkTarget   = "127.0.0.1:9"
	sourceTarget = "127.0.0.1:19"
)

// targetsRole serves them until it is killed.
func targetsRole(_ context.Context, _ io.Reader, out io.Writer) error {
	ended := make(chan error)
	for address, serve := range map[string]func(net.Conn){
		echoTarget: func(conn net.Conn) { io.Copy(conn, conn) },
		sinkTarget: func(conn net.Conn) { io.Copy(io.Discard, conn) },
		sourceTarget: func(conn net.Conn) {
			for block := make([]byte, 32<<10); ; {
				if _, err := conn.Write(block); err != nil {
					return
				}
			}
		},
	} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				go func() {
					defer conn.Close()
					serve(conn)
				}()
			}
		}()
	}
	fmt.Fprintln(out, "ready")
	return <-ended
}

type hubInput struct {
	Cert, Key []byte // of the authority
	Store     string // folder
	Address   string // for agents
	Front     string // for clients
	Target    string
}

// hubRole is a server in a process of its own, until it is killed.
func hubRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input hubInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("hub role: input: %w", err)
	}
	authority, err := tunnel.ParseAuthority(input.Cert, input.Key)
	if err != nil {
		return err
	}
	s := &tunnel.Server{Authority: authority, Store: tunnel.DirStore{Dir: input.Store}}
	front, err := net.Listen("tcp", input.Front)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", input.Address)
	if err != nil {
		return err
	}
	go serveFront(ctx, front, s.Dialer(cluster), input.Target)
	fmt.Fprintln(out, "ready")
	return s.Serve(ctx, l)
}
