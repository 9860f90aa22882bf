package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"
)

var remotedialerRow = row{
	name:       "remotedialer",
	newAgent:   newRemotedialerAgent,
	newServer:  newRemotedialerServer,
	idleAgents: 200,
}

// remotedialerHeader has an agent's name.
const remotedialerHeader = "X-Bench-Agent"

type remotedialerAgent struct {
	config *tls.Config
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
	n      int
}

func newRemotedialerAgent(s *Setup) (agent, error) {
	logrus.SetOutput(io.Discard)
	config, err := clientTLS(s.Dir)
	a := &remotedialerAgent{config: config}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a, err
}

func (*remotedialerAgent) addr() string { return "" }

func (a *remotedialerAgent) connect(ctx context.Context, server string, n int) (string, error) {
	dialer := &websocket.Dialer{TLSClientConfig: a.config, HandshakeTimeout: dialTimeout}
	for range n {
		up := make(chan struct{})
		failed := make(chan error, 1)
		header := http.Header{remotedialerHeader: {agentName(a.n)}}
		a.n++
		a.wg.Go(func() {
			failed <- remotedialer.ConnectToProxy(a.ctx, "wss://"+server, header, allowAll, dialer,
				func(context.Context, *remotedialer.Session) error { close(up); return nil })
		})
		select {
		case <-up:
		case err := <-failed:
			return "", fmt.Errorf("bench: remotedialer: %w", err)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return "", nil
}

func allowAll(string, string) bool { return true }

func agentName(n int) string { return fmt.Sprintf("agent-%d", n) }

func (a *remotedialerAgent) Close() error {
	a.cancel()
	a.wg.Wait()
	return nil
}

type remotedialerServer struct {
	http   *http.Server
	l      net.Listener
	target string
	dialer remotedialer.Dialer
	rd     *remotedialer.Server
	wg     sync.WaitGroup
}

func newRemotedialerServer(s *Setup) (server, error) {
	logrus.SetOutput(io.Discard)
	config, err := serverTLS(s.Dir)
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return nil, fmt.Errorf("bench: remotedialer: %w", err)
	}
	r := &remotedialerServer{l: l, target: s.Target}
	r.rd = remotedialer.New(func(req *http.Request) (string, bool, error) {
		return req.Header.Get(remotedialerHeader), true, nil
	}, remotedialer.DefaultErrorWriter)
	r.dialer = r.rd.Dialer(agentName(0))
	r.http = &http.Server{Handler: r.rd, ErrorLog: log.New(io.Discard, "", 0)}
	r.wg.Go(func() { r.http.Serve(l) })
	return r, nil
}

func (r *remotedialerServer) addr() string  { return r.l.Addr().String() }
func (r *remotedialerServer) sessions() int { return len(r.rd.ListClients()) }

func (r *remotedialerServer) dial(ctx context.Context) (net.Conn, error) {
	return r.dialer(ctx, "tcp", r.target)
}

// Close leaves the sessions to the agent's end or this process's: the library
// has no way to close them.
func (r *remotedialerServer) Close() error {
	err := r.http.Close()
	r.wg.Wait()
	return err
}
