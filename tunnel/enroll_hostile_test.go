package tunnel_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// TestEnrollForgedRequest: requests that no library makes.
func TestEnrollForgedRequest(t *testing.T) {
	key := newKey(t)
	good := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key))(t)
	spoilt := slices.Clone(good)
	spoilt[len(spoilt)-1] ^= 1
	huge := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 16383, 1), E: 65537}
	odd := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 2047, 1), E: 3}
	other := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"x"}}, key))(t)
	long := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: slices.Repeat([]string{strings.Repeat("x", 100)}, 90)}, key))(t)
	for name, test := range map[string]struct {
		csr, proven []byte
		says        string
	}{
		"as it is":                       {good, nil, ""},
		"proof of another one, same key": {good, other, "proof"},
		"wrong signature":                {spoilt, nil, "signature"},
		"RSA 16384":                      {forge(t, good, huge), nil, "2048 to 4096"},
		"RSA, exponent 3":                {forge(t, good, odd), nil, "2048 to 4096"},
		"more than 8 KiB":                {long, nil, "too long"},
		"bytes after it":                 {append(slices.Clone(good), 0), nil, "cannot be read"},
	} {
		s := newTunnelServer(t, &tunnel.MemoryStore{})
		code, err := request{key: key, request: test.csr, proven: test.proven}.send(s, s.invite("prod"))
		if test.says == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if test.says != "" && (code != tunnel.CodeBadProof || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: got %v, %v; want %v and %q", name, code, err, tunnel.CodeBadProof, test.says)
		}
	}
}

// forge puts another key into a request.
func forge(t *testing.T, request []byte, pub crypto.PublicKey) []byte {
	var outer struct {
		Info      asn1.RawValue
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}
	var info struct {
		Version    int
		Subject    asn1.RawValue
		Key        asn1.RawValue
		Attributes asn1.RawValue
	}
	_, err1 := asn1.Unmarshal(request, &outer)
	_, err2 := asn1.Unmarshal(outer.Info.FullBytes, &info)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	info.Key = asn1.RawValue{FullBytes: must(x509.MarshalPKIXPublicKey(pub))(t)}
	outer.Info = asn1.RawValue{FullBytes: must(asn1.Marshal(info))(t)}
	return must(asn1.Marshal(outer))(t)
}

// TestEnrollAnswers: what an agent makes of a server that holds the right
// authority and answers as it likes.
func TestEnrollAnswers(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	inv, root := s.invite("prod"), s.authority.Load().Certificate
	for _, test := range []struct {
		name  string
		bytes []byte // instead of an answer
		m     *wire.Message
		want  tunnel.Code
	}{
		{"nothing", []byte{}, nil, tunnel.CodeLost},
		{"half a message", []byte{0, 6, 0, 0, 0, 9, 1}, nil, tunnel.CodeLost},
		{"a message of 4 GB", []byte{0, 6, 0xff, 0xff, 0xff, 0xff}, nil, tunnel.CodeBadRequest},
		{"fields that go too far", []byte{0, 6, 0, 0, 0, 6, 0, 1, 0, 0, 0, 9}, nil, tunnel.CodeBadRequest},
		{"another kind", nil, wire.New(wire.MsgRoots), tunnel.CodeBadRequest},
		{"empty", nil, wire.New(wire.MsgIssued), tunnel.CodeBadCertificate},
		{"a code of its own", nil, wire.New(wire.MsgIssued).AddUint(wire.TagCode, 77), 77},
		{"another cluster's", nil, wire.New(wire.MsgIssued).AddBytes(wire.TagRoot, root.Raw), tunnel.CodeWrongCluster},
	} {
		key := newKey(t)
		if test.want == tunnel.CodeWrongCluster {
			cert := leaf(t, s.authority.Load(), key, func(c *x509.Certificate) { c.URIs[0] = tunnel.Identity{Cluster: "other", Agent: "a"}.URI() })
			test.m.AddBytes(wire.TagCertificate, cert.Raw)
		}
		a, b := s.link(tunnel.EnrollTLS(inv.Pin))
		wait := answer(t, b, func(*wire.Message) *wire.Message {
			if test.bytes != nil {
				b.Write(test.bytes)
				b.NetConn().Close()
			}
			return test.m
		})
		state := a.ConnectionState()
		if c, err := tunnel.Enroll(t.Context(), a, &state, inv, key, "test"); codeIn(err) != test.want || c != nil {
			t.Errorf("%s: got %v, %v; want %v", test.name, c, err, test.want)
		}
		wait()
	}
}

// TestEnrollContext: a server that never answers.
func TestEnrollContext(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	inv := s.invite("prod")
	for want, start := range map[tunnel.Code]func() (context.Context, context.CancelFunc){
		tunnel.CodeTimeout: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 20*time.Millisecond)
		},
		tunnel.CodeCanceled: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
	} {
		a, b := s.link(tunnel.EnrollTLS(inv.Pin))
		ctx, cancel := start()
		done := make(chan struct{})
		go func() {
			defer close(done)
			wire.Read(b, tunnel.MaxEnroll)
			if want == tunnel.CodeCanceled {
				cancel()
			}
		}()
		state := a.ConnectionState()
		_, err := tunnel.Enroll(ctx, a, &state, inv, newKey(t), "test")
		<-done
		if codeIn(err) != want || !errors.Is(err, ctx.Err()) {
			t.Errorf("got %v, want %v", err, want)
		}
		cancel()
	}
}
