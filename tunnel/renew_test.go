package tunnel_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

func TestRenew(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	c := s.enrolled("default/prod")
	for range 3 {
		next, err := s.renew(c)
		if err != nil {
			t.Fatal(err)
		}
		if next.Identity() != c.Identity() || next.Key == c.Key || next.Chain[0].SerialNumber.Cmp(c.Chain[0].SerialNumber) == 0 {
			t.Errorf("got %v after %v, want another key and certificate for the same agent", next, c)
		}
		c = next
	}
	if got, err := s.connect(c); err != nil || got != c.Identity() {
		t.Errorf("got %v, %v; want %v", got, err, c.Identity())
	}
}

func TestRenewRefuses(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	c := s.enrolled("prod")
	a, b := s.link(c.TLSConfig())
	stateA, stateB := a.ConnectionState(), b.ConnectionState()
	ask := func(id tunnel.Identity, kind bool) *wire.Message {
		_, m, err := tunnel.NewRequest(&stateA)
		if err != nil {
			t.Fatal(err)
		}
		if !kind {
			m = wire.New(wire.MsgEnroll)
		}
		return s.registrar.Renew(t.Context(), id, &stateB, m)
	}
	check := func(name string, got *wire.Message, want tunnel.Code) {
		t.Helper()
		if tunnel.Code(got.Uint(wire.TagCode)) != want || got.Kind != wire.MsgIssued {
			t.Errorf("%s: got %v %q, want %v", name, tunnel.Code(got.Uint(wire.TagCode)), got.Bytes(wire.TagText), want)
		}
	}
	check("nothing wrong", ask(c.Identity(), true), 0)
	check("another kind of message", ask(c.Identity(), false), tunnel.CodeBadRequest)
	check("another's session", ask(tunnel.Identity{Cluster: "prod", Agent: "b"}, true), tunnel.CodeBadCertificate)

	_, thief := s.link(s.enrolled("prod").TLSConfig())
	thiefState := thief.ConnectionState()
	_, stolen, err := tunnel.NewRequest(&stateA)
	if err != nil {
		t.Fatal(err)
	}
	thiefID, _, err := s.registrar.Identify(t.Context(), &thiefState)
	if err != nil {
		t.Fatal(err)
	}
	answer := s.registrar.Renew(t.Context(), thiefID, &thiefState, stolen)
	check("stolen request", answer, tunnel.CodeBadProof)
	if got, want := string(answer.Bytes(wire.TagID)), string(stolen.Bytes(wire.TagID)); got != want || want == "" {
		t.Errorf("the answer's id is %q, want %q", got, want)
	}

	s.setAhead(tunnel.DefaultLife + time.Second)
	check("expired since", ask(c.Identity(), true), tunnel.CodeCertificateExpired)
	s.setAhead(0)
	if _, err := recordsOf(s.store).Revoke(t.Context(), c.Identity(), time.Now()); err != nil {
		t.Fatal(err)
	}
	check("revoked since", ask(c.Identity(), true), tunnel.CodeRevoked)
	if _, err := s.connect(c); codeIn(err) != tunnel.CodeRevoked {
		t.Errorf("a new session of the revoked: got %v, want %v", err, tunnel.CodeRevoked)
	}
	s.authority.Store(newAuthority(t))
	check("authority dropped since", ask(c.Identity(), true), tunnel.CodeBadCertificate)
}

// TestAcceptRefuses: what an agent does not take from a server.
func TestAcceptRefuses(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	c, auth, key := s.enrolled("prod"), s.authority.Load(), newKey(t)
	same := func(cert *x509.Certificate) { cert.URIs = c.Chain[0].URIs }
	message := func(cert *x509.Certificate, roots ...*x509.Certificate) *wire.Message {
		m := wire.New(wire.MsgIssued)
		if cert != nil {
			m.AddBytes(wire.TagCertificate, cert.Raw)
		}
		for _, root := range roots {
			m.AddBytes(wire.TagRoot, root.Raw)
		}
		return m
	}
	good := leaf(t, auth, key, same)
	many := make([]*x509.Certificate, 33)
	for n := range many {
		many[n] = auth.Certificate
	}
	for _, test := range []struct {
		name string
		m    *wire.Message
		good bool
	}{
		{"good", message(good, auth.Certificate), true},
		{"of a clock that is a day ahead", message(leaf(t, auth, key, func(c *x509.Certificate) {
			same(c)
			c.NotBefore = time.Now().Add(24 * time.Hour)
			c.NotAfter = c.NotBefore.Add(time.Hour)
		}), auth.Certificate), true},
		{"no certificate", message(nil, auth.Certificate), false},
		{"no root", message(good), false},
		{"another root", message(good, newAuthority(t).Certificate), false},
		{"too many roots", message(good, many...), false},
		{"itself for a root", message(good, good), false},
		{"garbage for a root", message(good, auth.Certificate).AddBytes(wire.TagRoot, []byte("x")), false},
		{"another key", message(leaf(t, auth, newKey(t), same), auth.Certificate), false},
		{"another identity", message(leaf(t, auth, key, nil), auth.Certificate), false},
		{"the server's usage", message(leaf(t, auth, key, func(c *x509.Certificate) {
			same(c)
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), auth.Certificate), false},
	} {
		next, err := c.Accept(test.m, key)
		if test.good && (err != nil || next.Identity() != c.Identity()) {
			t.Errorf("%s: got %v, %v; want %v", test.name, next, err, c.Identity())
		}
		if !test.good && (codeIn(err) != tunnel.CodeBadCertificate || next != nil) {
			t.Errorf("%s: got %v, %v; want %v", test.name, next, err, tunnel.CodeBadCertificate)
		}
	}
}

// TestClocks: an agent's clock and the server's are 10 minutes apart.
func TestClocks(t *testing.T) {
	for _, test := range []struct {
		ahead time.Duration // of the server
		want  tunnel.Code
	}{
		{0, 0}, {10 * time.Minute, 0}, {-10 * time.Minute, 0},
		{tunnel.Backdate + time.Minute, tunnel.CodePin},
	} {
		s := newTunnelServer(t, &tunnel.MemoryStore{})
		s.setAhead(test.ahead)
		c, _, err, _ := s.enroll(s.invite("prod"), newKey(t))
		if codeIn(err) != test.want {
			t.Errorf("ahead %v: got %v, want %v", test.ahead, err, test.want)
		}
		if err != nil {
			continue
		}
		if late := s.now().Add(tunnel.DefaultLife).Sub(c.Expires()); late < 0 || late > time.Minute {
			t.Errorf("ahead %v: the certificate ends %v too early by the server's clock", test.ahead, late)
		}
		next, err := s.renew(c)
		if err != nil {
			t.Errorf("ahead %v: renewal: %v", test.ahead, err)
			continue
		}
		for _, ahead := range []time.Duration{test.ahead, 0} {
			s.setAhead(ahead) // several servers
			if _, err := s.connect(next); err != nil {
				t.Errorf("issued %v ahead, seen %v ahead: session: %v", test.ahead, ahead, err)
			}
		}
	}
}

func TestRenewAt(t *testing.T) {
	a, key := newAuthority(t), newKey(t)
	now := time.Now().Truncate(time.Second)
	for _, test := range []struct{ life, want time.Duration }{
		{3 * time.Hour, 2 * time.Hour},
		{3 * time.Minute, 2 * time.Minute}, // shorter than the time it is backdated by
	} {
		c := &tunnel.Credentials{Key: key, Chain: []*x509.Certificate{leaf(t, a, key, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(-tunnel.Backdate), now.Add(test.life)
		})}}
		if got := c.RenewAt().Sub(now); got != test.want {
			t.Errorf("life %v: got %v, want %v", test.life, got, test.want)
		}
	}
	if c := (&tunnel.Credentials{Key: key}); !c.RenewAt().IsZero() || !c.Expires().IsZero() || c.Identity() != (tunnel.Identity{}) {
		t.Errorf("before the enrolment: got %v, %v, %v; want zero", c.RenewAt(), c.Expires(), c.Identity())
	}
}

// TestRolloverStepByStep goes from one authority to the next. One agent is always
// connected, another one sleeps through all of it.
func TestRolloverStepByStep(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	old, next := s.authority.Load(), newAuthority(t)
	asleep, c := s.enrolled("prod"), s.enrolled("prod")
	inv := s.invite("prod")
	connects := func(step string, c *tunnel.Credentials) {
		t.Helper()
		if got, err := s.connect(c); err != nil || got != c.Identity() {
			t.Errorf("%s: got %v, %v; want %v", step, got, err, c.Identity())
		}
	}
	announce := func(a *tunnel.Authority) {
		t.Helper()
		s.authority.Store(a)
		var err error
		if c, err = c.Trusting(a.Roots()); err != nil {
			t.Fatal(err)
		}
	}
	announce(&tunnel.Authority{Certificate: old.Certificate, Key: old.Key, Trusted: []*x509.Certificate{next.Certificate}})
	connects("announced", c)
	connects("announced, asleep", asleep)

	announce(&tunnel.Authority{Certificate: next.Certificate, Key: next.Key, Trusted: []*x509.Certificate{old.Certificate}})
	connects("issuing", c)
	if _, err := s.connect(asleep); codeIn(err) != tunnel.CodeServerCertificate {
		t.Errorf("issuing, asleep: got %v, want %v", err, tunnel.CodeServerCertificate)
	}
	renewed, err := s.renew(c)
	if err != nil {
		t.Fatal(err)
	}
	if renewed.Chain[0].CheckSignatureFrom(next.Certificate) != nil || renewed.Identity() != c.Identity() {
		t.Error("the renewed certificate is not of the next authority, or of another agent")
	}
	late := c
	c = renewed
	connects("renewed", c)
	if _, _, err, _ := s.enroll(inv, newKey(t)); codeIn(err) != tunnel.CodePin {
		t.Errorf("an invitation of before: got %v, want %v", err, tunnel.CodePin)
	}

	announce(next)
	connects("dropped", c)
	if _, err := s.connect(late); codeIn(err) != tunnel.CodeBadCertificate {
		t.Errorf("dropped, with a certificate of before: got %v, want %v", err, tunnel.CodeBadCertificate)
	}
	if c2, err := c.Trusting(next.Roots()); err != nil || c2 != c {
		t.Errorf("the same roots again: got %v, %v; want what was", c2, err)
	}
	for _, m := range []*wire.Message{wire.New(wire.MsgRoots), wire.New(wire.MsgRoots).AddBytes(wire.TagRoot, c.Chain[0].Raw)} {
		if _, err := c.Trusting(m); codeIn(err) != tunnel.CodeBadRequest {
			t.Errorf("no roots: got %v, want %v", err, tunnel.CodeBadRequest)
		}
	}
}
