package admission

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"slices"
	"testing"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// firstHello is the body of the first record that a client sends.
func firstHello(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	go tls.Client(far, config).Handshake()
	b := make([]byte, 16<<10)
	n, err := near.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[5:n]
}

func TestIsShort(t *testing.T) {
	hello := firstHello(t, &tls.Config{ServerName: "tunnel.example.com", NextProtos: []string{"h2", "http/1.1"}})
	if !isShort(hello) {
		t.Errorf("a ClientHello of crypto/tls, of %d bytes, is not short", len(hello))
	}
	for n := range hello {
		// Where it is cut, it must not matter how.
		if isShort(hello[:n]) {
			t.Errorf("%d bytes of %d are a short ClientHello", n, len(hello))
		}
	}
}

// What a stranger may not make a server parse, and what clients really send.
func TestSparing(t *testing.T) {
	for _, tt := range []struct {
		name      string
		protocols int
		uris, dns int
		refused   bool
	}{
		{name: "a client"},
		{name: "a SPIFFE client", uris: 1},
		{name: "many names", dns: 40},
		{name: "too many names", dns: 70, refused: true},
		{name: "too many URIs", uris: 17, refused: true},
		{name: "too many protocols", protocols: 65, refused: true},
	} {
		// In each row with one configuration for all, and with one for each client.
		tryHello := func(t *testing.T, perClient bool) {
			ca := pki.NewCA("clients")
			cert := ca.Client("client")
			template := *cert.Leaf
			template.DNSNames, template.URIs = make([]string, tt.dns), nil
			for i := range template.DNSNames {
				template.DNSNames[i] = "a.example"
			}
			for range tt.uris {
				template.URIs = append(template.URIs, &url.URL{Scheme: "spiffe", Host: "example"})
			}
			der, err := x509.CreateCertificate(rand.Reader, &template, &template, cert.Leaf.PublicKey, cert.PrivateKey)
			if err != nil {
				t.Fatal(err)
			}
			near, far := net.Pipe()
			client := tls.Client(far, &tls.Config{
				InsecureSkipVerify: true, NextProtos: slices.Repeat([]string{"h2"}, max(tt.protocols, 1)),
				Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: cert.PrivateKey}},
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				client.Handshake()
				io.Copy(io.Discard, far)
			}()
			verified := false
			config := &tls.Config{
				Certificates: []tls.Certificate{ca.Server("127.0.0.1")}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"},
				VerifyConnection: func(tls.ConnectionState) error { verified = true; return nil },
			}
			if perClient {
				chosen := config
				config = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }}
			}
			server := tls.Server(near, LimitMessages(config))
			if err := server.Handshake(); (err != nil) != tt.refused || verified == tt.refused {
				t.Errorf("got %v, the next check was called: %t; want it refused: %t", err, verified, tt.refused)
			}
			near.Close()
			<-done
		}
		t.Run(tt.name, func(t *testing.T) { tryHello(t, false) })
		t.Run(tt.name+", per client", func(t *testing.T) { tryHello(t, true) })
	}
}
