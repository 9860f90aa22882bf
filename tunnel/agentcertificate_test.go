package tunnel_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// svidSource gives a certificate that lives for an hour, and another one half an
// hour later, as SPIRE's agent does.
type svidSource struct {
	d *trustDomain

	mu   sync.Mutex // guards the fields below
	last *tls.Certificate
	at   time.Time
	err  error // instead of a certificate
	held bool  // gives the same one
}

func (s *svidSource) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || !s.held && time.Since(s.at) >= 30*time.Minute {
		s.last, s.at = s.d.issue(svidPath, nil), time.Now()
		s.last.Leaf = nil // as tls.X509KeyPair did before Go 1.23
	}
	return s.last, s.err
}

func (s *svidSource) set(held bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.err = held, err
}

// pinned is an invitation without a token.
func pinned(b *bed) func(context.Context) (tunnel.Invitation, error) {
	pin := b.s.Authority.Pin()
	return func(context.Context) (tunnel.Invitation, error) { return tunnel.Invitation{Pin: pin}, nil }
}

// Certificates rotate, and so does the authority that signs them; streams live
// through all of it, and dials never find nobody.
func TestCertificateRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTrustDomain(t, "corp.example")
		renewed := 0
		b := newBed(t, &tunnel.Server{Identify: d.identify})
		source := &svidSource{d: d}
		a := b.agent(&tunnel.Agent{
			GetClientCertificate: source.get, Invitation: pinned(b),
			Hooks: tunnel.AgentHooks{
				Failed:   func(_ string, err error, _ time.Duration) { t.Errorf("failed: %v", err) },
				Enrolled: func(id tunnel.Identity, _ time.Time) { t.Errorf("%v enrolled", id) },
				Renewed: func(id tunnel.Identity, until time.Time) {
					if renewed++; id.Agent != "one" || time.Until(until) < 30*time.Minute {
						t.Errorf("renewed for %v until %v", id, until)
					}
				},
			},
		})
		stream := b.echo()
		for i := range 6 * 12 {
			switch i {
			case 2 * 12:
				d.rotate()
			case 4 * 12:
				d.dropOldest()
			}
			time.Sleep(5 * time.Minute)
			checkEcho(t, stream)
			b.echo().Close()
		}
		if renewed < 6 || renewed > 12 {
			t.Errorf("got %d certificates in 6 hours, want one in 30 to 60 minutes", renewed)
		}
		if st := a.Status(); st.Cluster != testCluster || st.Agent != "one" || time.Until(st.Expires) < 15*time.Minute {
			t.Errorf("got %+v, want the agent one of %s", st, testCluster)
		}
		stream.Close()
		synctest.Wait()
		if got := b.sessions(); len(got) != 1 || time.Until(got[0].Expires) < 15*time.Minute {
			t.Errorf("got %+v, want one session with the certificate of now", got)
		}
	})
}

// Each rotation replaces the sessions with both replicas, one by one.
func TestCertificateRotationOfTwoSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTrustDomain(t, "corp.example")
		m := newMesh(t)
		m.serve("a", &tunnel.Server{Identify: d.identify})
		m.serve("b", &tunnel.Server{Identify: d.identify})
		m.balance(alternate())
		a := m.agent(&tunnel.Agent{
			GetClientCertificate: (&svidSource{d: d}).get, Invitation: pinned(m.bed("a")),
			Hooks: tunnel.AgentHooks{Failed: func(server string, err error, _ time.Duration) { t.Errorf("failed at %s: %v", server, err) }},
		})
		m.meets(a, "a", "b")
		one, two := m.bed("a").echo(), m.bed("b").echo()
		defer one.Close()
		defer two.Close()
		for range 4 * 6 {
			for range 600 {
				time.Sleep(time.Second)
				if got := serving(a); len(slices.Compact(got)) != 2 {
					t.Fatalf("got sessions with %q, want two servers", got)
				}
			}
			checkEcho(t, one)
			checkEcho(t, two)
		}
		for _, name := range m.names() {
			if got := m.bed(name).sessions(); len(got) != 2 || got[0].Streams != 1 || !got[0].Draining || got[1].Draining {
				t.Errorf("%s: got %+v, want the first session with its stream, and the newest", name, got)
			}
		}
	})
}

// A certificate that is not rotated ends the session with it, and the agent
// says so in time; the next one mends it. So does one after an error.
func TestCertificateStays(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code tunnel.Code // what the agent reports in the end
		text string
	}{
		{"the same certificate", nil, tunnel.CodeBadCertificate, "GetClientCertificate still returns the certificate that ends at"},
		{"an error", errors.New("no workload socket"), tunnel.CodeNoIdentity, "no workload socket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newTrustDomain(t, "corp.example")
				gone, failed := make(chan error, 10), make(chan error, 1000)
				b := newBed(t, &tunnel.Server{Identify: d.identify, Hooks: tunnel.Hooks{
					Disconnected: func(_ tunnel.SessionInfo, err error) { gone <- err },
				}})
				source := &svidSource{d: d}
				b.agent(&tunnel.Agent{GetClientCertificate: source.get, Invitation: pinned(b), Hooks: tunnel.AgentHooks{
					Failed: func(_ string, err error, _ time.Duration) { failed <- err },
				}})
				source.set(true, tt.err)
				time.Sleep(59 * time.Minute)
				b.echo().Close()
				if err := <-failed; !strings.Contains(err.Error(), tt.text) {
					t.Errorf("got %v before the certificate's end, want %q", err, tt.text)
				}
				time.Sleep(10 * time.Minute)
				if err := <-gone; codeOf(err) != tunnel.CodeCertificateExpired {
					t.Errorf("the session ended with %v, want expired", err)
				}
				var last error
				for len(failed) > 0 {
					last = <-failed
				}
				if codeOf(last) != tt.code {
					t.Errorf("got %v, want code %d", last, tt.code)
				}
				source.set(false, nil)
				began := time.Now()
				b.await()
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("the agent was back after %v", took)
				}
				b.echo().Close()
			})
		})
	}
}

// What the function gives that is of no use is a failure; it is asked again.
func TestUselessCertificate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first func(good tls.Certificate) *tls.Certificate
		code  tunnel.Code
	}{
		{"nil", func(tls.Certificate) *tls.Certificate { return nil }, tunnel.CodeNoIdentity},
		{"an empty one", func(tls.Certificate) *tls.Certificate { return &tls.Certificate{} }, tunnel.CodeNoIdentity},
		{"garbage", func(tls.Certificate) *tls.Certificate { return &tls.Certificate{Certificate: [][]byte{{1}}} }, tunnel.CodeNoIdentity},
		{"without its intermediate", func(good tls.Certificate) *tls.Certificate {
			good.Certificate = good.Certificate[:1]
			return &good
		}, tunnel.CodeBadCertificate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newTrustDomain(t, "corp.example")
				good := d.issue(svidPath, nil)
				b := newBed(t, &tunnel.Server{Identify: d.identify})
				failed := make(chan error, 1)
				calls := 0
				b.agent(&tunnel.Agent{
					GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
						if err := info.SupportsCertificate(good); err != nil {
							t.Error(err)
						}
						if calls++; calls == 1 {
							return tt.first(*good), nil
						}
						return good, nil
					},
					Invitation: pinned(b),
					Hooks:      tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) { failed <- err }},
				})
				if err := <-failed; codeOf(err) != tt.code {
					t.Errorf("got %v, want code %d", err, tt.code)
				}
			})
		})
	}
}

// The agent shows its certificate to no server but the pinned one's, and to
// those that this one names: the authority may roll over while it runs.
func TestCertificatePin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTrustDomain(t, "corp.example")
		refused := make(chan error, 100)
		b := newBed(t, &tunnel.Server{Identify: d.identify, Hooks: tunnel.Hooks{Refused: func(_ net.Addr, err error) { refused <- err }}})
		old := pinned(b)
		running := b.agent(&tunnel.Agent{GetClientCertificate: (&svidSource{d: d}).get, Invitation: old})

		stream := b.echo()
		first, next := b.s.Authority, newAuthority(t)
		for _, a := range []*tunnel.Authority{
			{Certificate: first.Certificate, Key: first.Key, Trusted: []*x509.Certificate{next.Certificate}},
			{Certificate: next.Certificate, Key: next.Key, Trusted: []*x509.Certificate{first.Certificate}},
			next,
		} {
			if err := b.s.SetAuthority(a); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		checkEcho(t, stream) // the agent's certificate was of neither
		b.w.cut()
		b.await()
		b.echo().Close()
		running.stop()

		failed := make(chan error, 100)
		stranger := b.start(&tunnel.Agent{GetClientCertificate: (&svidSource{d: d}).get, Invitation: old, Hooks: tunnel.AgentHooks{
			Failed: func(_ string, err error, _ time.Duration) { failed <- err },
		}})
		if err := <-failed; codeOf(err) != tunnel.CodePin {
			t.Errorf("a new agent with the old pin: got %v, want the pin's code", err)
		}
		if err := <-refused; codeOf(err) != tunnel.CodeBadRequest {
			t.Errorf("the server is told %v, want a handshake that broke off", err)
		}
		stranger.stop()
		pin := next.Pin()
		b.agent(&tunnel.Agent{GetClientCertificate: (&svidSource{d: d}).get, Invitation: func(context.Context) (tunnel.Invitation, error) {
			return tunnel.Invitation{Pin: pin, Servers: []string{wireAddress}}, nil
		}})
	})
}

// Revoke ends the sessions of an agent that did not enrol, and keeps it out.
func TestCertificateRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTrustDomain(t, "corp.example")
		gone, failed := make(chan error, 10), make(chan error, 100)
		b := newBed(t, &tunnel.Server{Identify: d.identify, Hooks: tunnel.Hooks{
			Disconnected: func(_ tunnel.SessionInfo, err error) { gone <- err },
		}})
		b.agent(&tunnel.Agent{GetClientCertificate: (&svidSource{d: d}).get, Invitation: pinned(b), Hooks: tunnel.AgentHooks{
			Failed: func(_ string, err error, _ time.Duration) { failed <- err },
		}})
		synctest.Wait() // the agent has read its WELCOME
		if err := b.s.Revoke(t.Context(), tunnel.Identity{Cluster: testCluster, Agent: "one"}); err != nil {
			t.Fatal(err)
		}
		if err := <-gone; codeOf(err) != tunnel.CodeRevoked {
			t.Errorf("the session ended with %v, want revoked", err)
		}
		if err := <-failed; codeOf(err) != tunnel.CodeRevoked {
			t.Errorf("the agent is told %v, want revoked", err)
		}
	})
}

// A cluster is not forgotten with the certificate of an agent that did not
// enrol, or nobody would see that it is missing.
func TestCertificateEndsUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTrustDomain(t, "corp.example")
		b := newBed(t, &tunnel.Server{Identify: d.identify})
		b.agent(&tunnel.Agent{GetClientCertificate: (&svidSource{d: d}).get, Invitation: pinned(b)}).stop()
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{3 * 24 * time.Hour, 1}, {5 * 24 * time.Hour, 0}} {
			time.Sleep(step.after)
			if got := len(b.s.Status().Clusters); got != step.want {
				t.Errorf("got %d clusters another %v later, want %d", got, step.after, step.want)
			}
		}
	})
}

// Agents that enrolled are beside the others: Identify is not asked about them,
// be their certificates past their life.
func TestEnrolledBesideIdentify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTrustDomain(t, "corp.example")
		var asked atomic.Int64
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour, Identify: func(state tls.ConnectionState) (tunnel.Identity, error) {
			asked.Add(1)
			return d.identify(state)
		}})
		c := b.enrolled()
		b.agent(&tunnel.Agent{})
		b.agent(&tunnel.Agent{GetClientCertificate: (&svidSource{d: d}).get, Invitation: pinned(b)})
		synctest.Wait() // the session of enrolled has ended here, too
		if got := b.sessions(); len(got) != 2 {
			t.Errorf("got %+v, want both agents", got)
		}
		time.Sleep(2 * time.Hour)
		before := asked.Load()
		_, session := b.rawSession(c)
		if kind, code, err := readRaw(open(t, session, rawHello())); kind != 3 || code != uint64(tunnel.CodeCertificateExpired) || err != nil {
			t.Errorf("got %d with code %d, %v, want REFUSAL with %d", kind, code, err, tunnel.CodeCertificateExpired)
		}
		if asked.Load() != before {
			t.Error("Identify was asked about a certificate of the Authority")
		}
	})
}

// Who has the Identity of an agent that enrolled takes its place, and the other
// way round; neither's certificate has the other's session live on.
func TestIdentityOfBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTrustDomain(t, "corp.example")
		var id tunnel.Identity
		gone := make(chan error, 10)
		b := newBed(t, &tunnel.Server{
			Identify: func(state tls.ConnectionState) (tunnel.Identity, error) {
				_, err := d.identify(state)
				return id, err
			},
			Hooks: tunnel.Hooks{Disconnected: func(_ tunnel.SessionInfo, err error) { gone <- err }},
		})
		c := &tunnel.MemoryCredentials{}
		enrolled := b.agent(&tunnel.Agent{Credentials: c})
		info := b.sessions()[0]
		id = tunnel.Identity{Cluster: info.Cluster, Agent: info.Agent}
		enrolled.stop()
		<-gone

		a := handOver(t, b.wire(), tunnel.ProtoTunnel, d.issue(svidPath, nil))
		if m := a.hello(); m.kind != 2 {
			t.Fatalf("got %d, want WELCOME", m.kind)
		}
		b.await()
		b.agent(&tunnel.Agent{Credentials: c})
		if m := a.message(1); m.kind != 4 {
			t.Errorf("got %d, want DRAIN", m.kind)
		}
		b.echo().Close()
		go a.read(1, 1) // answers pings
		began := time.Now()
		if err := <-gone; codeOf(err) != tunnel.CodeCertificateExpired {
			t.Errorf("the session ended with %v, want expired", err)
		}
		if took := time.Since(began); took > time.Hour {
			t.Errorf("the session ended after %v, want an hour", took)
		}
		b.echo().Close()
	})
}

// Fields that don't go together.
func TestCertificateConfig(t *testing.T) {
	get := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }
	inv := func(context.Context) (tunnel.Invitation, error) { return tunnel.Invitation{}, nil }
	for _, tt := range []struct {
		agent *tunnel.Agent
		want  string
	}{
		{&tunnel.Agent{}, "field Credentials of the Agent is required"},
		{&tunnel.Agent{GetClientCertificate: get}, "field Invitation of the Agent is required with GetClientCertificate"},
		{&tunnel.Agent{GetClientCertificate: get, Invitation: inv, Credentials: &tunnel.MemoryCredentials{}}, "exclude each other"},
	} {
		if err := tt.agent.Run(t.Context()); codeOf(err) != tunnel.CodeConfig || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}
