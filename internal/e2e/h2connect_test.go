package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
)

// h2ConnectRole does what throughRole does, by CONNECT over HTTP/2, with
// net/http alone and on one connection.
func h2ConnectRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input throughInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("h2-connect role: input: %w", err)
	}
	proxy, err := url.Parse(input.Hops[0].URL)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: proxyTLS(input.Hops[0].CA), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	conn, err := transport.NewClientConn(ctx, "https", proxy.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	return json.NewEncoder(out).Encode(banners(ctx, h2Connect(conn, proxy), input))
}

// h2Connect dials by one stream for each connection.
func h2Connect(conn *http.ClientConn, proxy *url.URL) dialer.Func {
	password, _ := proxy.User.Password()
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		body, writer := io.Pipe()
		req := (&http.Request{
			Method:        http.MethodConnect,
			URL:           &url.URL{Scheme: "https", Host: proxy.Host},
			Host:          address,
			Header:        http.Header{},
			Body:          body,
			ContentLength: -1,
		}).WithContext(ctx)
		req.SetBasicAuth(proxy.User.Username(), password)
		req.Header["Proxy-Authorization"] = req.Header["Authorization"]
		delete(req.Header, "Authorization")
		res, err := conn.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if res.StatusCode != http.StatusOK {
			res.Body.Close()
			return nil, fmt.Errorf("h2 connect: %s", res.Status)
		}
		return &h2Conn{ReadCloser: res.Body, writer: writer}, nil
	}
}

// An h2Conn is as much of a net.Conn as a banner needs.
type h2Conn struct {
	net.Conn // nil
	io.ReadCloser
	writer *io.PipeWriter
}

func (c *h2Conn) Read(p []byte) (int, error) { return c.ReadCloser.Read(p) }

func (c *h2Conn) Close() error {
	c.writer.Close()
	return c.ReadCloser.Close()
}

// The bed's haproxy has CONNECT over HTTP/2: a thousand tunnels, and one
// connection for them all.
func TestH2Connect(t *testing.T) {
	b := sharedBed(t)
	r := route{log: b.HAProxy.Log}
	logged := []string{"port=" + b.HAProxy.TLSURL().Port() + " ", "status=200", " CONNECT " + b.SSH.Address() + " HTTP/2.0"}
	before, err := r.lines(logged)
	if err != nil {
		t.Fatal(err)
	}
	input := throughInput{
		Hops:    []hop{{b.HAProxy.TLSURL().String(), b.HAProxy.CA.CertPEM()}},
		Address: b.SSH.Address(), Count: bannerCount, Parallel: bannerParallel,
	}
	var got throughAnswer
	if err := b.Network.Client.Play(t.Context(), "h2-connect", input, &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d banners, %d lost, %.1f s", got.Banners, len(got.Lost), got.Seconds)
	if got.Banners != bannerCount || len(got.Lost) > 0 {
		t.Errorf("got %d banners, want %d; lost: %q", got.Banners, bannerCount, got.Lost[:min(5, len(got.Lost))])
	}
	r.waitLogged(t, "the tunnels", len(before), bannerCount, logged)
}
