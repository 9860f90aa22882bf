package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// What strangers can make a Server hold, in bytes:
//
//	handshakes    256 connections x 24 KiB, and 32 long ones x 1 MiB    38 MiB, or else
//	connections   256 x 150 KiB: TLS 17, net/http 24, header 40, body 64  38 MiB
//	that wait     1,024 x 8 KiB, not read                                8 MiB
//	large bodies  maxBody in all, answers too                            8 MiB
//	parsing       4 small bodies or 1 large one, see maxValues          16 MiB
//
// Parsing is what the Handlers of this module need. In time: 5 s for a handshake, 5 s
// for a header, 10 s for a body and as long for the answer. Whoever keeps the Server
// waiting for 250 ms makes room for others while there is no room.
const (
	// maxConnections is how many connections there are at once. An API server has one
	// for each review that it waits for, and by default at most 200 writes under way.
	maxConnections = 256
	maxHeader      = 16 << 10
	// maxLines is how many lines a header may have. net/http makes a hundred bytes of
	// a line of four.
	maxLines      = 64
	headerTimeout = 5 * time.Second // a handshake's, too
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 5 * time.Minute
)

// A Server serves AdmissionReviews over TLS and HTTP/1.1, as API servers ask. It bounds
// what clients cost that are no API server; see the package's text. It is safe for
// concurrent use.
type Server struct {
	// Handler answers; required. The body of its request has come, and its answer is
	// sent when it has returned.
	Handler http.Handler
	// TLS is the configuration; required, with a certificate. It is not changed.
	TLS *tls.Config
	// Grace is how long Serve waits for answers at the end. Zero: it does not wait.
	Grace time.Duration
	// Refused is called for each request that does not reach the Handler, or whose
	// answer does not reach the client, with the HTTP status. It may be nil.
	Refused func(status int, err error)
	// ErrorLog has what is wrong with connections. If nil, nothing has.
	ErrorLog *log.Logger
}

// Serve serves the connections of l until ctx ends or l fails. Then it closes l, waits for
// what was asked, and closes all connections. The error is that of l, or says that answers
// took longer than Grace.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	errorLog := cmp.Or(s.ErrorLog, log.New(io.Discard, "", 0))
	places := newPlaceListener(l, s.TLS, errorLog.Printf)
	defer places.Close()
	server := &http.Server{
		Handler:           newLimiter(s.Handler, s.Refused),
		ConnState:         func(c net.Conn, state http.ConnState) { c.(*placeConn).track(state) },
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          errorLog,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(places) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Grace)
		defer cancel()
		if server.Shutdown(limit) != nil && s.Grace > 0 {
			err = fmt.Errorf("webhook: there are requests without an answer after %v", s.Grace)
		}
		<-served
	}
	server.Close()
	return err
}

var errLines = errors.New("webhook: the header has too many lines")
