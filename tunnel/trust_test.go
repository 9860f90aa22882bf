package tunnel_test

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// TestPin: an agent with another pin sends nothing, not even the end of the
// handshake.
func TestPin(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	inv := s.invite("prod")
	other := newAuthority(t).Pin()
	for name, pin := range map[string]string{
		"another authority's": other,
		"of the leaf":         pinOfLeaf(s),
		"upper case":          "sha256:" + strings.ToUpper(inv.Pin[7:]),
		"empty":               "",
	} {
		inv.Pin = pin
		_, _, err, hookErr := s.enroll(inv, newKey(t))
		if codeIn(err) != tunnel.CodePin {
			t.Errorf("pin %s: got %v, want %v", name, err, tunnel.CodePin)
		}
		if hookErr == nil {
			t.Errorf("pin %s: the server's handshake went well", name)
		}
	}
	if spentFor(t, s.store, inv.Token) != "" {
		t.Error("the token was spent")
	}
}

func pinOfLeaf(s *tunnelServer) string {
	a, _ := s.link(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{tunnel.ProtoEnroll}})
	return tunnel.Pin(a.ConnectionState().PeerCertificates[0])
}

// TestImpostor: what holds a certificate of the right authority, or of
// another, and is not the server.
func TestImpostor(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	c, a := s.enrolled("prod"), s.authority.Load()
	server := func(cert *x509.Certificate) {
		cert.URIs = []*url.URL{{Scheme: "causeway", Host: "server"}}
		cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	with := func(change func(*x509.Certificate)) func(*x509.Certificate) {
		return func(cert *x509.Certificate) { server(cert); change(cert) }
	}
	key := newKey(t)
	// an agent that takes its certificate for an authority's
	sub := &tunnel.Authority{Certificate: c.Chain[0], Key: c.Key}
	tests := []struct {
		name  string
		chain []*x509.Certificate
		key   crypto.Signer
		good  bool
	}{
		{"a server", []*x509.Certificate{leaf(t, a, key, server)}, key, true},
		{"an agent", c.Chain, c.Key, false},
		{"no URI", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.URIs = nil; c.DNSNames = []string{"causeway"} }))}, key, false},
		{"an agent's URI", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.URIs[0].Host = "agent"; c.URIs[0].Path = "/prod/a" }))}, key, false},
		{"two URIs", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.URIs = append(c.URIs, &url.URL{Scheme: "causeway", Host: "x"}) }))}, key, false},
		{"path after the URI", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.URIs[0].Path = "/x" }))}, key, false},
		{"client's usage", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }))}, key, false},
		{"no usage", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.ExtKeyUsage = nil }))}, key, false},
		{"any usage", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }))}, key, false},
		{"expired", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }))}, key, false},
		{"to come", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }))}, key, false},
		{"another authority's", []*x509.Certificate{leaf(t, newAuthority(t), key, server)}, key, false},
		{"an agent's", []*x509.Certificate{leaf(t, sub, key, server), c.Chain[0]}, key, false},
		{"an authority", []*x509.Certificate{leaf(t, a, key, with(func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }))}, key, false},
	}
	for _, test := range tests {
		cert := tls.Certificate{PrivateKey: test.key}
		for _, link := range append(test.chain, a.Certificate) {
			cert.Certificate = append(cert.Certificate, link.Raw)
		}
		config := &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true,
			NextProtos: []string{tunnel.ProtoTunnel, tunnel.ProtoEnroll}}
		for proto, agent := range map[tunnel.Code]*tls.Config{tunnel.CodeServerCertificate: c.TLSConfig(), tunnel.CodePin: tunnel.EnrollTLS(a.Pin())} {
			_, _, err, serverErr := linkTLS(t, agent, config)
			if test.good && (err != nil || serverErr != nil) {
				t.Errorf("%s: got %v, %v; want none", test.name, err, serverErr)
			}
			if !test.good && (codeIn(err) != proto || serverErr == nil) {
				t.Errorf("%s: got %v, and the server %v; want %v for both", test.name, err, serverErr, proto)
			}
		}
	}
}

// TestProtocols: a server and an agent that speak of different things.
func TestProtocols(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	c := s.enrolled("prod")
	none := s.registrar.TLSConfig()
	none.NextProtos = nil
	if _, _, err, _ := linkTLS(t, c.TLSConfig(), none); codeIn(err) != tunnel.CodeServerCertificate {
		t.Errorf("a server without ALPN: got %v", err)
	}
	if _, _, _, err := linkTLS(t, &tls.Config{InsecureSkipVerify: true}, s.registrar.TLSConfig()); codeIn(err) != tunnel.CodeVersion {
		t.Errorf("a client without ALPN: got %v, want %v", err, tunnel.CodeVersion)
	}
	old := c.TLSConfig()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, _, err, _ := linkTLS(t, old, s.registrar.TLSConfig()); err == nil {
		t.Error("the server speaks TLS 1.2")
	}
	for name, agent := range map[string]*tls.Config{"session": c.TLSConfig(), "enrolment": tunnel.EnrollTLS(s.authority.Load().Pin())} {
		old := s.registrar.TLSConfig()
		old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		if _, _, err, _ := linkTLS(t, agent, old); err == nil {
			t.Errorf("%s: the agent speaks TLS 1.2", name)
		}
	}
}

// TestEachIsHardened: what is right for a carrier is in every configuration.
func TestEachIsHardened(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	for name, config := range map[string]*tls.Config{
		"session": s.enrolled("prod").TLSConfig(), "enrolment": tunnel.EnrollTLS(s.authority.Load().Pin()),
		"server": s.registrar.TLSConfig(), "peer": must(s.registrar.PeerTLS())(t),
	} {
		if config.MinVersion != tls.VersionTLS13 || !config.SessionTicketsDisabled || !config.DynamicRecordSizingDisabled {
			t.Errorf("%s: got version %x, tickets %t, small records %t; want %x, false, false",
				name, config.MinVersion, !config.SessionTicketsDisabled, !config.DynamicRecordSizingDisabled, tls.VersionTLS13)
		}
	}
}

// TestSessionsShare: the sessions with a name have one configuration, for as
// long as the credentials are the same.
func TestSessionsShare(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	a, b := s.enrolled("prod"), s.enrolled("prod")
	names := []string{"one", "one", "two", "two", "one"}
	got := tunnel.SessionTLS([]*tunnel.Credentials{a, a, a, b, b}, names...)
	for i, config := range got {
		if config.ServerName != names[i] {
			t.Errorf("session %d: got the name %q, want %q", i, config.ServerName, names[i])
		}
		shown := must(config.GetClientCertificate(nil))(t)
		if want := []*tunnel.Credentials{a, a, a, b, b}[i]; shown.Leaf != want.Chain[0] {
			t.Errorf("session %d: got other credentials", i)
		}
		if shared := i > 0 && config == got[i-1]; shared != (i == 1) {
			t.Errorf("session %d: got shared %t", i, shared)
		}
	}
}

// TestIdentify: which client certificates the server takes for an agent's. The
// handshake goes well with all of them.
func TestIdentify(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	a, key := s.authority.Load(), newKey(t)
	revoked := tunnel.Identity{Cluster: "prod", Agent: "revoked"}
	if _, err := recordsOf(s.store).Revoke(t.Context(), revoked, time.Now()); err != nil {
		t.Fatal(err)
	}
	uri := func(text ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.URIs = nil
			for _, text := range text {
				c.URIs = append(c.URIs, must(url.Parse(text))(t))
			}
		}
	}
	agent := s.enrolled("prod")
	sub := &tunnel.Authority{Certificate: agent.Chain[0], Key: agent.Key}
	ended := time.Now().Add(-30 * time.Second)
	tests := []struct {
		name   string
		by     *tunnel.Authority
		change func(*x509.Certificate)
		want   tunnel.Code
	}{
		{"an agent", a, nil, 0},
		{"other URIs beside", a, uri("causeway://agent/prod/a", "spiffe://x/y"), 0},
		{"another authority's", newAuthority(t), nil, tunnel.CodeBadCertificate},
		{"another authority's, expired", newAuthority(t), func(c *x509.Certificate) { c.NotAfter = ended }, tunnel.CodeBadCertificate},
		{"signed by an agent", sub, nil, tunnel.CodeBadCertificate},
		{"the server's usage", a, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, tunnel.CodeBadCertificate},
		{"no usage", a, func(c *x509.Certificate) { c.ExtKeyUsage = nil }, tunnel.CodeBadCertificate},
		{"any usage", a, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, tunnel.CodeBadCertificate},
		{"an authority", a, func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }, tunnel.CodeBadCertificate},
		{"the server's URI", a, uri("causeway://server"), tunnel.CodeBadCertificate},
		{"no URI", a, uri(), tunnel.CodeBadCertificate},
		{"two agents", a, uri("causeway://agent/prod/a", "causeway://agent/prod/b"), tunnel.CodeBadCertificate},
		{"no agent", a, uri("causeway://agent/prod"), tunnel.CodeBadCertificate},
		{"empty cluster", a, uri("causeway://agent//a"), tunnel.CodeBadCertificate},
		{"expired", a, func(c *x509.Certificate) { c.NotAfter = ended }, tunnel.CodeCertificateExpired},
		{"to come", a, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, tunnel.CodeBadCertificate},
		{"revoked", a, func(c *x509.Certificate) { c.URIs = []*url.URL{revoked.URI()} }, tunnel.CodeRevoked},
		{"revoked and expired", a, func(c *x509.Certificate) { c.URIs = []*url.URL{revoked.URI()}; c.NotAfter = ended }, tunnel.CodeCertificateExpired},
	}
	for _, test := range tests {
		c := &tunnel.Credentials{Key: key, Chain: []*x509.Certificate{leaf(t, test.by, key, test.change)}, Roots: []*x509.Certificate{a.Certificate}}
		id, err := s.connect(c)
		if codeIn(err) != test.want {
			t.Errorf("%s: got %v, %v; want %v", test.name, id, err, test.want)
		}
		if want := (tunnel.Identity{Cluster: "prod", Agent: "a"}); test.want == 0 && id != want {
			t.Errorf("%s: got %v, want %v", test.name, id, want)
		}
		if test.want == tunnel.CodeCertificateExpired && !strings.Contains(err.Error(), ended.UTC().Format(time.RFC3339)) {
			t.Errorf("%s: got %v, which does not say when", test.name, err)
		}
	}
	if _, err := s.connect(&tunnel.Credentials{Key: key, Roots: []*x509.Certificate{a.Certificate}}); codeIn(err) != tunnel.CodeBadCertificate {
		t.Errorf("no certificate: got %v, want %v", err, tunnel.CodeBadCertificate)
	}
}

// TestAuthorityForServers: an authority that may sign for servers alone signs
// no agent, though the agent's certificate says so.
func TestAuthorityForServers(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	a, key := s.authority.Load(), newKey(t)
	for usage, want := range map[x509.ExtKeyUsage]tunnel.Code{x509.ExtKeyUsageServerAuth: tunnel.CodeBadCertificate, x509.ExtKeyUsageClientAuth: 0} {
		sub := &tunnel.Authority{Key: newKey(t)}
		sub.Certificate = leaf(t, a, sub.Key, func(c *x509.Certificate) {
			c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.URIs = true, true, x509.KeyUsageCertSign, nil
			c.ExtKeyUsage = []x509.ExtKeyUsage{usage}
		})
		s.authority.Store(&tunnel.Authority{Certificate: a.Certificate, Key: a.Key, Trusted: []*x509.Certificate{sub.Certificate}})
		c := &tunnel.Credentials{Key: key, Chain: []*x509.Certificate{leaf(t, sub, key, nil)}, Roots: []*x509.Certificate{a.Certificate}}
		if _, err := s.connect(c); codeIn(err) != want {
			t.Errorf("authority for usage %v: got %v, want %v", usage, err, want)
		}
	}
}

// TestServerCertificate: made once, anew at half of its life, and when
// another authority signs.
func TestServerCertificate(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	serial := func() *big.Int {
		cert := must(s.registrar.TLSConfig().GetCertificate(&tls.ClientHelloInfo{}))(t)
		if len(cert.Certificate) != 2 || len(cert.Leaf.DNSNames) > 0 {
			t.Errorf("got %d certificates and names %q", len(cert.Certificate), cert.Leaf.DNSNames)
		}
		return cert.Leaf.SerialNumber
	}
	first := serial()
	if serial().Cmp(first) != 0 {
		t.Error("the certificate is made anew for each connection")
	}
	s.setAhead(4 * 24 * time.Hour)
	second := serial()
	if second.Cmp(first) == 0 {
		t.Error("the certificate is not renewed")
	}
	s.setAhead(0)
	if serial().Cmp(second) == 0 {
		t.Error("a certificate that begins in the future is used")
	}
	third := serial()
	s.authority.Store(newAuthority(t))
	if serial().Cmp(third) == 0 {
		t.Error("the certificate is of the former authority")
	}
}
