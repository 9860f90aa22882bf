package dialer

import (
	"net/http"
	"time"
)

// Transport returns a new http.Transport that makes its connections with d
// and reads no proxy from the environment. It speaks HTTP/2 where the server
// does, and notices a dead HTTP/2 connection within 45 seconds. The caller
// may change it before its first use, and closes its idle connections.
func Transport(d Dialer) *http.Transport {
	return &http.Transport{
		DialContext:           d.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   25,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
		},
	}
}
