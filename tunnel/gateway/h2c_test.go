package gateway_test

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
)

// h2c is a client of HTTP/2 by prior knowledge: one connection, many streams.
type h2c struct {
	addr           net.Addr
	user, password string

	mu   sync.Mutex // guards the fields below
	wire net.Conn
	cc   *http.ClientConn
}

func h2cClient(t testing.TB, addr net.Addr, user, password string) dialer.Dialer {
	c := &h2c{addr: addr, user: user, password: password}
	t.Cleanup(func() {
		if c.cc != nil {
			c.cc.Close()
		}
	})
	return c
}

func (c *h2c) connect(ctx context.Context) (*http.ClientConn, net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil && c.cc.Available() > 0 {
		return c.cc, c.wire, nil
	}
	var err error
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		c.wire, err = (&net.Dialer{}).DialContext(ctx, c.addr.Network(), c.addr.String())
		return c.wire, err
	}
	c.cc, err = transport.NewClientConn(ctx, "http", "gateway:80")
	return c.cc, c.wire, err
}

func (c *h2c) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	cc, conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	body, in := io.Pipe()
	streamCtx, cancel := context.WithCancel(context.Background())
	req := connectRequestOf(address, body).WithContext(streamCtx)
	if c.user != "" {
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.user+":"+c.password)))
	}
	stop := context.AfterFunc(ctx, cancel)
	res, err := cc.RoundTrip(req)
	if err != nil || !stop() {
		cancel()
		return nil, &dialer.Error{Op: "h2c", Err: err}
	}
	if res.StatusCode != 200 {
		text, _ := io.ReadAll(res.Body)
		cancel()
		return nil, &dialer.Error{Op: "h2c", Status: res.StatusCode, Err: &dialer.Refusal{StatusCode: res.StatusCode, Header: res.Header, Body: text}}
	}
	return &h2cStream{Conn: conn, out: res.Body, in: in, cancel: cancel}, nil
}

func connectRequestOf(address string, body io.ReadCloser) *http.Request {
	return &http.Request{Method: "CONNECT", URL: &url.URL{Host: address}, Host: address, Header: http.Header{}, Body: body, ContentLength: -1}
}

type h2cStream struct {
	net.Conn
	out    io.ReadCloser
	in     *io.PipeWriter
	cancel func()
}

func (s *h2cStream) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *h2cStream) Write(p []byte) (int, error) { return s.in.Write(p) }
func (s *h2cStream) CloseWrite() error           { return s.in.Close() }

func (s *h2cStream) Reset(uint32) error {
	s.in.CloseWithError(net.ErrClosed) // its end would end the request
	s.cancel()
	return nil
}

func (s *h2cStream) Close() error {
	s.in.Close()
	s.cancel()
	return s.out.Close()
}

func (s *h2cStream) SetDeadline(d time.Time) error { return nil }
