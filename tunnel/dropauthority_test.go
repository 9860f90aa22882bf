package tunnel_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// signing is an authority that signs, beside others that are trusted.
func signing(a *tunnel.Authority, trusted ...*tunnel.Authority) *tunnel.Authority {
	next := &tunnel.Authority{Certificate: a.Certificate, Key: a.Key}
	for _, other := range trusted {
		next.Trusted = append(next.Trusted, other.Certificate)
	}
	return next
}

func setAuthority(t *testing.T, s *tunnel.Server, a *tunnel.Authority) {
	t.Helper()
	if err := s.SetAuthority(a); err != nil {
		t.Fatal(err)
	}
}

// Who has the key of an authority that was dropped is out at once, with all that
// it carries; who has a certificate of one that is left stays.
func TestDropAuthority(t *testing.T) {
	for _, tt := range []struct {
		name    string
		trusted bool // what signed the certificate is left
	}{{"dropped", false}, {"left", true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan error, 1)
				stolen, next := newAuthority(t), newAuthority(t)
				b := newBed(t, &tunnel.Server{Authority: signing(next, stolen), Hooks: tunnel.Hooks{
					Disconnected: func(_ tunnel.SessionInfo, err error) { gone <- err },
				}})
				issuer := stolen
				if tt.trusted {
					issuer = next
				}
				key := newKey(t)
				cert := leaf(t, issuer, key, func(c *x509.Certificate) {
					c.URIs = []*url.URL{tunnel.Identity{Cluster: testCluster, Agent: "thief"}.URI()}
					c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
				})
				session := b.rawOf(&tunnel.Credentials{Key: key, Chain: []*x509.Certificate{cert}, Roots: []*x509.Certificate{next.Certificate}}, func(st *rawStream) { st.dialed(0) })
				conn, err := b.dial("x:7")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				setAuthority(t, b.s, signing(next))
				if tt.trusted {
					synctest.Wait()
					if session.Err() != nil || len(gone) > 0 {
						t.Errorf("the session ended: %v", session.Err())
					}
					return
				}
				<-session.Done()
				if err := <-gone; codeOf(err) != tunnel.CodeBadCertificate {
					t.Errorf("got %v, want a bad certificate", err)
				}
				var cause *tunnel.Error
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &cause) || cause.Code != tunnel.CodeBadCertificate {
					t.Errorf("got %v of its stream, want a loss by a bad certificate", err)
				}
				if _, err := b.dial("x:7"); codeOf(err) != tunnel.CodeNoAgent {
					t.Errorf("got %v, want no agent", err)
				}
			})
		})
	}
}

// Nor is there a way past it for one that was connecting.
func TestDropAuthorityWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		c := b.enrolled()
		near, far := net.Pipe()
		served := make(chan error, 1)
		go func() {
			served <- b.s.ServeGreeted(t.Context(), far, func() { setAuthority(t, b.s, newAuthority(t)) })
		}()
		carrier, err := tunnel.RawCarrier(t.Context(), near, c)
		if err != nil {
			t.Fatal(err)
		}
		session := mux.Client(carrier, nil)
		defer session.Close()
		if _, err := session.Open(t.Context(), rawHello()); err != nil {
			t.Fatal(err)
		}
		<-session.Done()
		if err := <-served; err != nil {
			t.Error(err)
		}
		synctest.Wait() // the session has been forgotten
		if got := b.sessions(); len(got) != 0 {
			t.Errorf("got %+v, want no session", got)
		}
	})
}

// An agent that is cut off says why, and comes back with another invitation.
func TestDropAuthorityOfAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		var mu sync.Mutex
		inv := b.invite()
		failures := make(chan error, 100)
		b.agent(&tunnel.Agent{
			FirstBackoff: time.Second, MaxBackoff: time.Second,
			Invitation: func(context.Context) (tunnel.Invitation, error) {
				mu.Lock()
				defer mu.Unlock()
				return inv, nil
			},
			Hooks: tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) { failures <- err }},
		})
		synctest.Wait() // it has its WELCOME
		setAuthority(t, b.s, newAuthority(t))
		err := <-failures
		if code := codeOf(err); code != tunnel.CodeBadCertificate && code != tunnel.CodeServerCertificate {
			t.Errorf("the agent got %v, want a certificate that is not trusted", err)
		}
		mu.Lock()
		inv = b.invite()
		mu.Unlock()
		b.await()
		b.echo().Close()
	})
}

// What a replica has, in both directions, with another one whose authority was
// dropped ends at once, and comes back when that one has followed.
func TestDropAuthorityOfPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan error, 10)
		r := newReplicas(t)
		for _, name := range []string{"a", "b"} {
			r.members.all = append(r.members.all, name+":1")
		}
		a := r.serve(&tunnel.Server{Name: "a", Hooks: tunnel.Hooks{PeerDisconnected: func(_ string, err error) { gone <- err }}})
		b := r.serve(&tunnel.Server{Name: "b"})
		r.mesh()
		next := newAuthority(t)
		setAuthority(t, a.s, next)
		if err := <-gone; codeOf(err) != tunnel.CodeServerCertificate {
			t.Errorf("got %v, want a certificate that is not trusted", err)
		}
		synctest.Wait()
		if got := connected(b.s); !slices.Equal(got, []string{"b"}) {
			t.Errorf("b is connected to %q, want itself alone", got)
		}
		if got := row(a.s, "b"); got.Connected || got.LastError == "" {
			t.Errorf("got %+v, want an error", got)
		}
		setAuthority(t, b.s, next)
		r.mesh()
	})
}

// A rollover as it is documented refuses no agent, fails no dial and cuts no
// stream that was opened after all had renewed, whichever replica it goes by.
func TestRolloverOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = time.Hour
		never := tunnel.KeepAlive{ProbeAfter: -1, DeadAfter: -1} // or the hours are long
		refused := make(chan error, 100)
		r := newReplicas(t)
		r.members.all = []string{"a:1", "b:1"}
		old, next := r.Authority, newAuthority(t)
		for _, name := range []string{"a", "b"} {
			r.serve(&tunnel.Server{Name: name, CertificateLife: life, KeepAlive: never, Hooks: tunnel.Hooks{Refused: func(_ net.Addr, err error) {
				if codeOf(err) != tunnel.CodeHeld {
					refused <- err
				}
			}}})
		}
		r.mesh()
		failed := make(chan error, 100)
		r.at("b", &tunnel.Agent{KeepAlive: never, FirstBackoff: time.Second, Hooks: tunnel.AgentHooks{
			Failed: func(_ string, err error, _ time.Duration) { failed <- err },
		}})
		time.Sleep(time.Minute)
		var streams []net.Conn
		check := func(step string) {
			t.Helper()
			for i, conn := range streams {
				if _, err := conn.Write(nil); err != nil {
					t.Fatalf("%s: stream %d: %v", step, i, err)
				}
				checkEcho(t, conn)
			}
		}
		for i, step := range []*tunnel.Authority{signing(old, next), signing(next, old), signing(next)} {
			for _, name := range []string{"a", "b"} {
				setAuthority(t, r.beds[name].s, step)
				time.Sleep(time.Minute) // a Secret does not come to all at once
				for _, from := range []string{"a", "b"} {
					r.beds[from].echo().Close()
				}
			}
			check(step.String())
			if i == 1 {
				time.Sleep(life) // all have renewed, and the replicas are connected anew
			}
			streams = append(streams, r.beds["a"].echo(), r.beds["b"].echo())
			time.Sleep(life + 5*time.Minute)
			if i == 0 {
				// They are older than the next authority's first certificate.
				check("before the next signs")
				streams[0].Close()
				streams[1].Close()
				streams = nil
			}
			check(step.String())
		}
		r.mesh()
		for len(refused)+len(failed) > 0 {
			select {
			case err := <-refused:
				t.Errorf("refused: %v", err)
			case err := <-failed:
				t.Errorf("the agent: %v", err)
			}
		}
		for _, conn := range streams {
			conn.Close()
		}
	})
}

// The session on which an agent has renewed stays when the authority of the
// certificate that it began with goes.
func TestRenewedSessionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		old, next := b.s.Authority, newAuthority(t)
		creds := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: creds})
		setAuthority(t, b.s, signing(old, next))
		time.Sleep(time.Minute)
		setAuthority(t, b.s, signing(next, old))
		busy := b.echo()
		defer busy.Close()
		time.Sleep(45 * time.Minute) // it renews after 40
		if got := b.sessions(); len(got) != 2 {
			t.Fatalf("got %+v, want one that drains and another", got)
		}
		setAuthority(t, b.s, signing(next))
		synctest.Wait()
		checkEcho(t, busy)
		if got := b.sessions(); len(got) != 2 {
			t.Errorf("got %+v, want both", got)
		}
	})
}
