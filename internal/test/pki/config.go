package pki

import (
	"crypto/tls"
	"sync"
	"time"
)

// shared is the authority of ServerTLS and ClientTLS.
var shared = sync.OnceValue(func() *CA { return NewCA("test") })

// sharedTime is a time at which the certificates are valid: a bubble of synctest has
// another one.
func sharedTime() time.Time { return shared().Cert.NotBefore.Add(time.Hour) }

// ServerTLS returns the configuration of a server that ClientTLS verifies, for
// server.test and 127.0.0.1. All callers share it. Its first call must be outside of a
// bubble of synctest.
var ServerTLS = sync.OnceValue(func() *tls.Config {
	return &tls.Config{Time: sharedTime, Certificates: []tls.Certificate{shared().Server("server.test", "127.0.0.1")}}
})

// ClientTLS returns the configuration of a client of ServerTLS. It is the caller's.
func ClientTLS() *tls.Config {
	return &tls.Config{Time: sharedTime, RootCAs: shared().Pool(), ServerName: "server.test"}
}
