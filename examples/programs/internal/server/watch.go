package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/follow"
	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// watcher looks for what commands have written to the state, and applies it to the
// connected agents; and for files that have changed.
type watcher struct {
	*program
	files []func() // look whether files have changed

	mu        sync.Mutex                 // guards the field below
	delivered map[tunnel.Identity]string // digest of the payloads that the agent was sent last
}

func newWatcher(p *program) *watcher {
	return &watcher{program: p, delivered: map[tunnel.Identity]string{}}
}

// payloads returns what an agent gets when it connects.
func (w *watcher) payloads(ctx context.Context, id tunnel.Identity) ([]tunnel.Payload, error) {
	list, err := w.state.payloads(ctx, id.Cluster)
	if err == nil {
		w.notePayloads(id, payloadDigest(list))
	}
	return list, err
}

// notePayloads reports whether the agent was sent other payloads before, and remembers
// these.
func (w *watcher) notePayloads(id tunnel.Identity, digest string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.delivered[id] != digest
	w.delivered[id] = digest
	return changed
}

func payloadDigest(list []tunnel.Payload) string {
	h := sha256.New()
	for _, p := range list {
		fmt.Fprintf(h, "%q %q\n", p.Name, p.Data)
	}
	return string(h.Sum(nil))
}

// add has check called now and then, before run is called.
func (w *watcher) add(check func()) { w.files = append(w.files, check) }

func (w *watcher) run(ctx context.Context, every time.Duration) {
	follow.Run(ctx, every, func() {
		for _, check := range w.files {
			check()
		}
		w.checkState(ctx)
	})
}

func (w *watcher) checkState(ctx context.Context) {
	for _, err := range []error{loadTickets(ctx, w.state, w.tickets), w.tickets.saveUses(ctx, w.state), w.joins.follow(ctx)} {
		if err != nil {
			w.log.Warn("state", "error", err)
		}
	}
	online := map[tunnel.Identity]bool{}
	for _, cluster := range w.server.Status().Clusters {
		for _, s := range cluster.Sessions {
			online[tunnel.Identity{Cluster: s.Cluster, Agent: s.Agent}] = true
		}
	}
	push := map[string][]tunnel.Payload{}
	for id := range online {
		list, err := w.state.payloads(ctx, id.Cluster)
		if err == nil && w.notePayloads(id, payloadDigest(list)) {
			push[id.Cluster] = list
		}
		if err != nil {
			w.log.Warn("state", "agent", id.String(), "error", err)
		}
	}
	for cluster, list := range push {
		for _, p := range list {
			if err := w.server.Push(ctx, cluster, p); err != nil {
				w.log.Warn("payload not confirmed", "cluster", cluster, "name", p.Name, "error", err)
			} else {
				w.log.Info("pushed", "cluster", cluster, "name", p.Name)
			}
		}
	}
	w.forgetOffline(online)
}

func (w *watcher) forgetOffline(online map[tunnel.Identity]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.delivered, func(id tunnel.Identity, _ string) bool { return !online[id] })
}

// followCertificate returns TLS with the certificate in the files, which counts from the
// next handshake on when it changes.
func (p *program) followCertificate(listener, cert, key string) (*tls.Config, error) {
	c, err := command.LoadCertificate(listener, cert, key, p.log)
	if err != nil {
		return nil, err
	}
	if pair, err := c.Get(nil); err == nil && time.Now().After(pair.Leaf.NotAfter) {
		p.log.Warn("certificate has expired", "for", listener, "until", pair.Leaf.NotAfter)
	}
	p.watch.add(func() { c.Get(nil) }) // for the log, if nobody comes
	p.metrics.certificates[listener] = c.Get
	return &tls.Config{GetCertificate: c.Get}, nil
}

// followClientCAs has the door ask for certificates of the authorities in the file, and lets their
// clients in. Each request is checked by the file as it is then: a connection by HTTP/2 may have
// begun long before.
func (p *program) followClientCAs(g *gateway.Gateway, file string) error {
	var current atomic.Pointer[x509.CertPool]
	authorities, err := follow.Open(file, func(text []byte) error {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return errors.New("there is no certificate in it")
		}
		current.Store(pool)
		return nil
	})
	if err != nil {
		return err
	}
	p.watch.add(func() { authorities.Check(p.log, "client authorities", "door-client-ca") })
	g.TLS.ClientAuth, g.TLS.ClientCAs = tls.VerifyClientCertIfGiven, current.Load()
	first := g.TLS.Clone() // without GetConfigForClient
	g.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := first.Clone()
		now.ClientCAs = current.Load()
		return now, nil
	}
	g.Authenticate = gateway.FirstOf(func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if len(c.Certificates) == 0 {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		o := x509.VerifyOptions{Roots: current.Load(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		for _, cert := range c.Certificates[1:] {
			o.Intermediates.AddCert(cert)
		}
		name := c.Certificates[0].Subject.CommonName
		if _, err := c.Certificates[0].Verify(o); err != nil || name == "" {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		return gateway.Identity{Name: name, Cluster: name}, nil
	}, g.Authenticate)
	return nil
}

// followLimits reads the file of --limits, now and when it changes.
func (p *program) followLimits(file string) error {
	followed, err := follow.Open(file, func(text []byte) error {
		c, err := limits.Parse(text)
		if err == nil {
			p.metrics.limiter.Set(c)
			p.warnUnknownClusters(c)
		}
		return err
	})
	if err != nil {
		return err
	}
	p.watch.add(func() { followed.Check(p.log, "limits", "limits") })
	return nil
}

// warnUnknownClusters names the clusters that have limits and no agents: one whose name is
// wrong has no limit. It says nothing if the state can't be read.
func (p *program) warnUnknownClusters(c *limits.Config) {
	ctx, cancel := context.WithTimeout(p.late, revocationTimeout)
	defer cancel()
	var unknown []string
	for _, cluster := range c.Clusters() {
		_, notInvited := p.state.read(ctx, clusterFile(cluster))
		_, notJoining := p.state.read(ctx, joinFile(cluster))
		if errors.Is(notInvited, fs.ErrNotExist) && errors.Is(notJoining, fs.ErrNotExist) {
			unknown = append(unknown, cluster)
		}
	}
	if unknown != nil {
		p.log.Warn("limits: no agent was invited", "cluster", strings.Join(unknown, ", "))
	}
}
