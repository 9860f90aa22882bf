package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/causewayproject/causeway/internal/mux"
)

// muxRow is our session layer without what the tunnel puts around it.
var muxRow = row{
	name:       "causeway-mux",
	about:      "internal/mux over TLS 1.3, 128 KiB buffers below",
	newAgent:   newMuxAgent,
	newServer:  newMuxServer,
	idleAgents: 200,
}

type muxAgent struct {
	config *tls.Config
	target string
	wg     sync.WaitGroup
	open   []*mux.Session
}

func newMuxAgent(s *setup) (agent, error) {
	config, err := clientTLS(s.Dir)
	return &muxAgent{config: config, target: s.Target}, err
}

func (*muxAgent) addr() string { return "" }

func (a *muxAgent) connect(ctx context.Context, server string, n int) (string, error) {
	for range n {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", server)
		if err != nil {
			return "", err
		}
		carrier, err := newCarrier(conn, func(c net.Conn) *tls.Conn { return tls.Client(c, a.config) })
		if err != nil {
			return "", err
		}
		session := mux.Client(carrier, nil)
		a.open = append(a.open, session)
		a.wg.Go(func() { a.serve(session) })
	}
	return "", nil
}

func (a *muxAgent) serve(session *mux.Session) {
	for {
		stream, err := session.Accept(context.Background())
		if err != nil {
			return
		}
		a.wg.Go(func() {
			conn, err := net.DialTimeout("tcp", a.target, dialTimeout)
			if err != nil {
				stream.Close()
				return
			}
			muxRelay(conn, stream)
		})
	}
}

func (a *muxAgent) Close() error {
	for _, session := range a.open {
		session.Close()
	}
	a.wg.Wait()
	return nil
}

type muxServer struct {
	*listener
	first atomic.Pointer[mux.Session]
	count atomic.Int64
}

func newMuxServer(s *setup) (server, error) {
	config, err := serverTLS(s.Dir)
	if err != nil {
		return nil, err
	}
	m := &muxServer{}
	m.listener, err = listen(func(conn net.Conn) {
		carrier, err := newCarrier(conn, func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
		if err != nil {
			return
		}
		session := mux.Server(carrier, nil)
		defer session.Close()
		m.first.CompareAndSwap(nil, session)
		m.count.Add(1)
		<-session.Done()
	})
	return m, err
}

func (m *muxServer) sessions() int { return int(m.count.Load()) }

func (m *muxServer) dial(ctx context.Context) (net.Conn, error) {
	session := m.first.Load()
	if session == nil {
		return nil, errors.New("bench: mux: there is no session")
	}
	return session.Open(ctx, nil)
}

func (*muxServer) relay(client, stream net.Conn) { muxRelay(client, stream.(*mux.Stream)) }

// muxRelay is relay by the stream's own loops, which copy nothing.
func muxRelay(conn net.Conn, stream *mux.Stream) {
	end := func() {
		conn.Close()
		stream.Close()
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		stream.ReadFrom(conn)
		end()
	})
	wg.Go(func() {
		stream.DeliverTo(conn)
		end()
	})
	wg.Wait()
}
