package admission

import (
	"crypto/tls"
	"net"
	"testing"
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
