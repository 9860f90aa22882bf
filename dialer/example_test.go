package dialer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
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
