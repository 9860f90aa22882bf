package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/dialer"
)

// A hop is a proxy on the way, as a role gets it.
type hop struct {
	URL string
	CA  []byte // of an https proxy
}

func (r route) hop() hop { return hop{r.proxy.String(), r.proxyCA} }

// dialerThrough returns the Dialer that goes through the hops in their order,
// or nil if there is none.
func dialerThrough(hops ...hop) (dialer.Dialer, error) {
	if len(hops) == 0 {
		return nil, nil
	}
	proxies, err := proxiesOf(nil, hops)
	if err != nil {
		return nil, err
	}
	return dialer.Chain(proxies...)
}

// proxiesOf returns a Dialer for each hop. h2 is for those that speak HTTP/2.
func proxiesOf(h2 *dialer.HTTP2, hops []hop) ([]dialer.Dialer, error) {
	var proxies []dialer.Dialer
	for _, h := range hops {
		u, err := dialer.ParseURL(h.URL)
		if err != nil {
			return nil, err
		}
		opts := &dialer.Options{HTTP2: h2}
		if len(h.CA) > 0 {
			opts.TLSConfig = proxyTLS(h.CA)
		}
		d, err := dialer.FromURL(u, opts)
		if err != nil {
			return nil, err
		}
		proxies = append(proxies, d)
	}
	return proxies, nil
}

func proxyTLS(ca []byte) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots}
}

type throughInput struct {
	Hops     []hop
	HTTP2    bool // where the proxy speaks it
	Failover bool // the hops stand in for each other, instead of a chain
	Address  string
	Count    int // of connections
	Parallel int // of them at a time
}

type throughAnswer struct {
	Banners int      // connections whose first line was sshd's
	Lost    []string // what came of the others
	Seconds float64
	Failure *failure // of the last dial that failed
	// Connections is how many were made from here.
	Connections int
}

// A failure is what a *dialer.Error has.
type failure struct {
	Op         string
	Phase      dialer.Phase
	Status     int
	SquidError string // the header
	Login      bool   // it is dialer.ErrLogin
	Refused    bool   // it is ECONNREFUSED
	Text       string
}

// throughRole dials an sshd through proxies and reads its banner, many times.
func throughRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input throughInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("through role: input: %w", err)
	}
	var h2 *dialer.HTTP2
	if input.HTTP2 {
		h2 = &dialer.HTTP2{}
		defer h2.Close()
	}
	proxies, err := proxiesOf(h2, input.Hops)
	if err != nil {
		return err
	}
	var d dialer.Dialer = &dialer.Failover{Dialers: proxies}
	if !input.Failover {
		if d, err = dialer.Chain(proxies...); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var connections atomic.Int32
	ctx = dialer.WithTrace(ctx, &dialer.Trace{Done: func(e dialer.Event) {
		if e.Phase == dialer.PhaseTCP && e.Err == nil {
			connections.Add(1)
		}
	}})
	answer := banners(ctx, d.DialContext, input)
	answer.Connections = int(connections.Load())
	return json.NewEncoder(out).Encode(answer)
}

// banners asks for input.Count banners.
func banners(ctx context.Context, dial dialer.Func, input throughInput) throughAnswer {
	var (
		mu     sync.Mutex // guards answer
		answer throughAnswer
		wg     sync.WaitGroup
	)
	one := func() {
		err := banner(ctx, dial, input.Address)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			answer.Banners++
			return
		}
		answer.Lost = append(answer.Lost, err.Error())
		answer.Failure = failureOf(err)
	}
	began := time.Now()
	for n := range input.Parallel {
		wg.Go(func() {
			for range (input.Count + n) / input.Parallel {
				one()
			}
		})
	}
	wg.Wait()
	answer.Seconds = time.Since(began).Seconds()
	return answer
}

// banner is an error unless the first line of a connection is sshd's.
func banner(ctx context.Context, dial dialer.Func, address string) error {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read after %q: %w", line, err)
	}
	if !strings.HasPrefix(line, "SSH-2.0-OpenSSH") {
		return fmt.Errorf("got the line %q", line)
	}
	return nil
}

func failureOf(err error) *failure {
	var e *dialer.Error
	if !errors.As(err, &e) {
		return nil
	}
	f := &failure{
		Op: e.Op, Phase: e.Phase, Status: e.Status, Text: e.Error(),
		Login:   errors.Is(err, dialer.ErrLogin),
		Refused: errors.Is(err, syscall.ECONNREFUSED),
	}
	var refusal *dialer.Refusal
	if errors.As(err, &refusal) {
		f.SquidError = refusal.Header.Get("X-Squid-Error")
	}
	return f
}
