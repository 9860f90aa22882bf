package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// A proxy in front of any dial function. A client with a ticket reaches its
// cluster; without one it gets a 407.
func Example() {
	tickets := new(gateway.Tickets)
	g := &gateway.Gateway{
		Authenticate: tickets.Authenticate,
		Dial: func(_ context.Context, r gateway.Request) (net.Conn, error) {
			near, far := net.Pipe() // or a tunnel's server.Dialer(r.Cluster)
			go func() {
				fmt.Fprintf(far, "hello from %s in %s", r.Address, r.Cluster)
				far.Close()
			}()
			return near, nil
		},
	}
	defer g.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go g.ServeConnect(context.Background(), l)

	user, password, err := tickets.Issue(gateway.Identity{Name: "ann", Cluster: "default/prod"}, time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	for _, who := range []*url.Userinfo{url.UserPassword(user, password), url.UserPassword("ann", "guess")} {
		proxy := &url.URL{Scheme: "http", User: who, Host: l.Addr().String()}
		d, err := dialer.FromURL(proxy, nil)
		if err != nil {
			log.Fatal(err)
		}
		conn, err := d.DialContext(context.Background(), "tcp", "kubernetes.default.svc:443")
		var refused *dialer.Error
		if errors.As(err, &refused) {
			fmt.Println(refused.Phase, refused.Status)
			continue
		}
		text, err := io.ReadAll(conn)
		fmt.Println(string(text), err)
		conn.Close()
	}
	// Output:
	// hello from kubernetes.default.svc:443 in default/prod <nil>
	// auth 407
}

// An access log: who, from where, to where, how long and how much.
func ExampleHooks() {
	written := make(chan string, 10)
	log := func(r gateway.Request, text string) {
		host, _, _ := net.SplitHostPort(r.Credentials.Remote.String())
		written <- fmt.Sprintf("%s from %s to %q in %q: %s", r.Client.Name, host, r.Address, r.Cluster, text)
	}
	tickets := new(gateway.Tickets)
	g := &gateway.Gateway{
		Authenticate: tickets.Authenticate,
		Dial: func(_ context.Context, r gateway.Request) (net.Conn, error) {
			if r.Address != "api:80" {
				return nil, errors.New("there is no such target")
			}
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				far.Read(make([]byte, 1000))
				io.WriteString(far, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			}()
			return near, nil
		},
		Hooks: gateway.Hooks{
			// e.Took is how long it lasted.
			Ended: func(r gateway.Request, e gateway.Ended) { log(r, fmt.Sprintf("%d bytes out", e.Out)) },
			Failed: func(err error) {
				var e *gateway.Error
				if errors.As(err, &e) && e.Request.Client.Name != "" {
					log(e.Request, fmt.Sprintf("%s: %v", e.Phase, e.Err))
				}
			},
		},
	}
	defer g.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go g.ServeConnect(context.Background(), l)

	user, password, _ := tickets.Issue(gateway.Identity{Name: "ann", Cluster: "default/prod"}, time.Hour)
	proxy := &url.URL{Scheme: "http", User: url.UserPassword(user, password), Host: l.Addr().String()}
	for _, target := range []string{"api:80", "db:5432"} {
		conn, err := net.Dial("tcp", proxy.Host)
		if err != nil {
			panic(err)
		}
		request := &http.Request{Method: "CONNECT", URL: &url.URL{Host: target}, Host: target, Header: http.Header{}}
		request.SetBasicAuth(user, password)
		request.Header["Proxy-Authorization"] = request.Header["Authorization"]
		request.Write(conn)
		io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
		io.Copy(io.Discard, conn)
		conn.Close()
		fmt.Println(<-written)
	}

	// Output:
	// ann from 127.0.0.1 to "api:80" in "default/prod": 46 bytes out
	// ann from 127.0.0.1 to "db:5432" in "default/prod": dial: there is no such target
}
