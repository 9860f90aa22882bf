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

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/dialer"
)

// h2c is a client of HTTP/2 by prior knowledge: one connection, many streams.
type h2c struct {
	addr           net.Addr
	user, password string
	transport      http2.Transport

	mu   sync.Mutex // guards the fields below
	conn net.Conn
	cc   *http2.ClientConn
}

func h2cClient(t testing.TB, addr net.Addr, user, password string) dialer.Dialer {
	c := &h2c{addr: addr, user: user, password: password}
	t.Cleanup(func() {
		if c.conn != nil {
			c.conn.Close()
		}
	})
	return c
}

func (c *h2c) connect() (*http2.ClientConn, net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil && c.cc.CanTakeNewRequest() {
		return c.cc, c.conn, nil
	}
	conn, err := net.Dial(c.addr.Network(), c.addr.String())
	if err != nil {
		return nil, nil, err
	}
	if c.cc, err = c.transport.NewClientConn(conn); err != nil {
		conn.Close()
		return nil, nil, err
	}
	c.conn = conn
	return c.cc, conn, nil
}

func (c *h2c) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	cc, conn, err := c.connect()
	if err != nil {
		return nil, err
	}
	body, in := io.Pipe()
	streamCtx, cancel := context.WithCancel(context.Background())
	req := (&http.Request{Method: "CONNECT", URL: &url.URL{Host: address}, Host: address, Header: http.Header{}, Body: body, ContentLength: -1}).WithContext(streamCtx)
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
