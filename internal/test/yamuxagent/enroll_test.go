package yamuxagent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
)

// An identity is what an agent has when it is enrolled.
type identity struct {
	server string
	tls.Certificate
	roots func(tls.ConnectionState) *x509.CertPool // the signers of the server's certificate
}

// enrolAgent spends the invitation's token on a certificate (section 6).
func enrolAgent(ctx context.Context, invitation string) (*identity, error) {
	inv, err := readInvitation(invitation)
	if err != nil {
		return nil, err
	}
	server, _, _ := strings.Cut(inv["CAUSEWAY_SERVERS"], ",")
	id := &identity{server: server, roots: func(s tls.ConnectionState) *x509.CertPool {
		return pinnedTLS(s, inv["CAUSEWAY_PIN"])
	}}
	conn, err := id.dial(ctx, "causeway-enroll/1")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, proof, err := signProof(conn.ConnectionState(), key)
	if err != nil {
		return nil, err
	}
	issued, err := askServer(conn, encodeMessage(kindEnroll, newNumberField(tagVersion, 1), newTextField(tagToken, inv["CAUSEWAY_TOKEN"]),
		encodeMessage(tagRequest, request), encodeMessage(tagProof, proof), newTextField(tagProgram, "yamux-agent")), kindIssued)
	if err != nil {
		return nil, err
	}
	for _, der := range issued.fields[tagCertificate] {
		id.Certificate.Certificate = append(id.Certificate.Certificate, []byte(der))
	}
	id.PrivateKey = key
	roots := x509.NewCertPool()
	for _, der := range issued.fields[tagRoot] {
		if c, err := x509.ParseCertificate([]byte(der)); err == nil {
			roots.AddCert(c)
		}
	}
	id.roots = func(tls.ConnectionState) *x509.CertPool { return roots }
	return id, nil
}

// pinnedTLS are the certificates that the server sent whose key has the hash.
func pinnedTLS(s tls.ConnectionState, pin string) *x509.CertPool {
	roots := x509.NewCertPool()
	for _, c := range s.PeerCertificates {
		if sum := sha256.Sum256(c.RawSubjectPublicKeyInfo); pin == "sha256:"+hex.EncodeToString(sum[:]) {
			roots.AddCert(c)
		}
	}
	return roots
}

// signProof makes a request for a certificate, and the proof that it belongs to this
// connection.
func signProof(s tls.ConnectionState, key *ecdsa.PrivateKey) (request, proof []byte, err error) {
	exporter, err := s.ExportKeyingMaterial("EXPORTER-causeway-proof", nil, 32)
	if err != nil {
		return nil, nil, err
	}
	if request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
		return nil, nil, err
	}
	digest := sha256.Sum256(slices.Concat([]byte("causeway proof 1\x00"), exporter, request))
	proof, err = ecdsa.SignASN1(rand.Reader, key, digest[:])
	return request, proof, err
}

// dial speaks TLS with the server. It checks the certificate's signer, and that it is
// a tunnel server's; the names in it do not count (section 2).
func (id *identity) dial(ctx context.Context, protocol string) (*tls.Conn, error) {
	conn, err := (&tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &id.Certificate, nil },
		InsecureSkipVerify:   true, // VerifyConnection does it
		VerifyConnection: func(s tls.ConnectionState) error {
			leaf := s.PeerCertificates[0]
			if !slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == "causeway://server" }) {
				return errors.New("the certificate is not a tunnel server's")
			}
			_, err := leaf.Verify(x509.VerifyOptions{Roots: id.roots(s)}) // for serverAuth
			return err
		},
	}}).DialContext(ctx, "tcp", id.server)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

var errNoInvitation = errors.New("the file is not an invitation: causeway enroll prints one with -format env")

// readInvitation reads lines of NAME=value.
func readInvitation(path string) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if values[name], err = url.PathUnescape(value); err != nil || strings.Contains(value, " ") {
			return nil, errNoInvitation // and nothing of it: it holds a secret
		}
	}
	if values["CAUSEWAY_SERVERS"] == "" || values["CAUSEWAY_TOKEN"] == "" || values["CAUSEWAY_PIN"] == "" {
		return nil, errNoInvitation
	}
	return values, nil
}
