// Package h2spec runs h2spec, the conformance tests of HTTP/2, against the
// gateway's CONNECT door.
package h2spec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cases is how many h2spec has, the strict ones included. net/http passes 141.
const cases = 146

// sometimes is the exception that passes if the door has answered before the trailers come.
const sometimes = "generic/4/4"

// exceptions are the cases that the door does not pass, and why.
var exceptions = map[string]string{
	sometimes:     "It ends a request by trailers. In a tunnel they are a stream error: RFC 9113, 8.5.",
	"http2/3.5/2": "It begins with something else than HTTP/2. The door speaks HTTP/1.1 too, and answers in that.",
}

func TestDoor(t *testing.T) {
	host, port, err := net.SplitHostPort(openDoor(t))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Host: host, Port: n, Path: "/", Timeout: 2 * time.Second, MaxHeaderLen: 4000, Strict: true}
	passed, seen := 0, 0
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		group.Test(c)
		for id, tc := range casesOf(group) {
			seen++
			reason, excepted := exceptions[id]
			switch failure := failureOf(tc); {
			case failure == nil && excepted && id != sometimes:
				t.Errorf("%s passes: it is no exception any more", id)
			case failure == nil:
				passed++
			case excepted:
				t.Logf("%s, %s: not passed: %s", id, tc.Desc, reason)
			default:
				t.Errorf("%s, %s: %v", id, tc.Desc, failure)
			}
		}
	}
	t.Logf("%d of %d cases passed", passed, seen)
	if seen != cases {
		t.Errorf("h2spec has %d cases, want %d", seen, cases)
	}
}

// casesOf returns the cases of a group, by the name that h2spec gives them.
func casesOf(g *spec.TestGroup) map[string]*spec.TestCase {
	all := map[string]*spec.TestCase{}
	for i, tc := range append(g.Tests, g.StrictTests...) {
		all[fmt.Sprintf("%s/%d", g.ID(), i+1)] = tc
	}
	for _, sub := range g.Groups {
		for id, tc := range casesOf(sub) {
			all[id] = tc
		}
	}
	return all
}

// failureOf returns why a case did not pass, nil if it did.
func failureOf(tc *spec.TestCase) error {
	switch r := tc.Result; {
	case r == nil:
		return errors.New("it has not run")
	case r.Skipped, r.Failed:
		return r.Error
	}
	return nil
}

// openDoor returns the address of a rewriter that leads to a door.
func openDoor(t *testing.T) string {
	page := serve(t, func(conn net.Conn) {
		io.WriteString(conn, "a page")
		io.Copy(io.Discard, conn)
	})
	g := &gateway.Gateway{
		Authenticate: gateway.Anyone,
		Dial: func(ctx context.Context, _ gateway.Request) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", page)
		},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.ServeConnect(context.Background(), l) }()
	t.Cleanup(func() {
		g.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return serve(t, func(conn net.Conn) { rewrite(conn, l.Addr().String()) })
}

// serve calls handle for each connection to the address that it returns, and
// closes the connection.
func serve(t *testing.T, handle func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				// h2spec leaves some of its connections open.
				defer context.AfterFunc(t.Context(), func() { conn.Close() })()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}
