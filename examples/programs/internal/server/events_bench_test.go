package server

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// BenchmarkAccessLine is the cost of a line, which a system call writes.
func BenchmarkAccessLine(b *testing.B) {
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	for _, flags := range []string{"--log-format=text", "--log-format=json", "--log-level=warn"} {
		b.Run(flags, func(b *testing.B) {
			var f logs.Flags
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.Add(set)
			if err := set.Parse([]string{flags}); err != nil {
				b.Fatal(err)
			}
			ended := newEvents(f.New(out)).doorHooks("connect").Ended
			r := gateway.Request{Client: gateway.Identity{Name: "ann"}, Cluster: "default/prod", Address: "kubernetes.default.svc:443"}
			r.Credentials.Remote = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40112}
			e := gateway.Ended{In: 1841, Out: 90233, Took: 12 * time.Second,
				Target: tunnel.Addr{Cluster: "default/prod", Target: "kubernetes.default.svc:443", Agent: "k3v7xq2m4c6n5b2a", Replica: "causeway-agent-7f9c"}}
			b.ReportAllocs()
			for b.Loop() {
				ended(r, e)
			}
		})
	}
}

// BenchmarkDoorDial is a connection through a door and an agent, with its line and without.
func BenchmarkDoorDial(b *testing.B) {
	for _, level := range []string{"info", "warn"} {
		b.Run("--log-level="+level, func(b *testing.B) {
			ticket := serveQuietly(b, level)
			b.ReportAllocs()
			for b.Loop() {
				if err := through(b, ticket, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// serveQuietly runs a server whose log nobody reads, and an agent. It returns a ticket for
// its door.
func serveQuietly(b *testing.B, level string) (ticket string) {
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	dir, listen, page, connect := b.TempDir(), freeAddress(b), freeAddress(b), freeAddress(b)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"--state", dir, "--listen", listen, "--status", page, "--connect", connect, "--log-level", level}, nil, out, out)
	}()
	b.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, out.Close()); err != nil {
			b.Error(err)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.Dial("tcp", page)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
		runtime.Gosched()
	}
	agent := startAgent(b, newInvitation(b, dir, "--server", listen), echo(b), nil)
	receive(b, "session", agent.connected)
	return strings.TrimSpace(output(b, "", "ticket", cluster, "--state", dir, "--user", "ann", "--gateway", "http://"+connect))
}

func freeAddress(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
