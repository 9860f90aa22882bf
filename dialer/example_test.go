package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/causewayproject/causeway/dialer"
)

func ExampleFromURL() {
	u, err := dialer.ParseURL("http://user:p%40ss@proxy.example.com:3128")
	if err != nil {
		log.Fatal(err)
	}
	d, err := dialer.FromURL(u, nil)
	if err != nil {
		log.Fatal(err)
	}
	client := dialer.Transport(d)
	defer client.CloseIdleConnections()
	fmt.Printf("%T", d)
	// Output: *dialer.HTTPConnect
}

func ExampleParseURL_error() {
	_, err := dialer.ParseURL("http://user:pass/word@proxy.example.com:3128")
	fmt.Println(err)
	// Output: dialer: config: not a URL: want scheme://[user:password@]host[:port]; in the user info, percent-encode : / ? # @ and spaces
}

func ExampleError() {
	d := &dialer.SOCKS5{Addr: "jump.example.com:1080", Credentials: dialer.Password("", "")}
	_, err := d.DialContext(context.Background(), "tcp", "10.0.0.1:6443")
	var e *dialer.Error
	if errors.As(err, &e) {
		fmt.Println("phase:", e.Phase)
	}
	fmt.Println(err)
	// Output:
	// phase: auth
	// dialer: 10.0.0.1:6443 through socks5://jump.example.com:1080: auth: the user name is empty, which SOCKS5 can't carry
}

func ExampleWithTrace() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx = dialer.WithTrace(ctx, &dialer.Trace{Done: func(e dialer.Event) {
		fmt.Println(e.Phase, e.Addr, e.Duration, e.Err)
	}})
	d := &dialer.HTTPConnect{Addr: "proxy.example.com:3128"}
	if conn, err := d.DialContext(ctx, "tcp", "10.0.0.1:6443"); err == nil {
		conn.Close()
	}
}

// Negotiate takes its tokens from a GSSAPI library. NTLM has the same form,
// and Digest answers with a hash of the challenge and c.Target.
func ExampleAuthFunc() {
	// spnego stands for the library: it makes a token of the proxy's last one.
	spnego := func(challenge string) (string, error) { return "YIIC" + challenge, nil }
	negotiate := dialer.AuthFunc(func(_ context.Context, c *dialer.Challenge) (string, error) {
		if c.Attempt == 0 {
			return "", nil // wait to be asked
		}
		for _, offer := range c.Header.Values("Proxy-Authenticate") {
			scheme, challenge, _ := strings.Cut(offer, " ")
			if strings.EqualFold(scheme, "Negotiate") {
				token, err := spnego(challenge)
				return "Negotiate " + token, err
			}
		}
		return "", nil // not asked for what we have: the dial fails with the 407
	})
	value, err := negotiate.Authenticate(context.Background(), &dialer.Challenge{
		Attempt: 1,
		Header:  http.Header{"Proxy-Authenticate": {`Basic realm="x"`, "Negotiate"}},
	})
	fmt.Println(value, err)
	// Output: Negotiate YIIC <nil>
}

// One connection to the proxy carries all dials.
func ExampleHTTP2() {
	shared := &dialer.HTTP2{}
	defer shared.Close()
	d := &dialer.HTTPConnect{Addr: "proxy.example.com:443", TLSConfig: &tls.Config{}, HTTP2: shared}
	client := dialer.Transport(d)
	defer client.CloseIdleConnections()
}
