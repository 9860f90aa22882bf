package controllers

import (
	"cmp"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// decoding has one place in the process: an object that is decoded takes up to fifty times its
// text, and there is a watch for each kind that a tenant's Clusters name.
var decoding = make(chan struct{}, 1)

// decodingTime is how long one waits for the place: who has it may wait for an API server.
const decodingTime = time.Second / 2

// takeDecoding returns what gives the place back.
func takeDecoding(place chan struct{}) (leave func()) {
	select {
	case place <- struct{}{}:
		return func() { <-place }
	case <-time.After(decodingTime):
		return func() {}
	}
}

// turnsTransport has its watches take turns: what was read of one is decoded before its next Read.
type turnsTransport struct {
	http.RoundTripper
	place chan struct{}
}

// takeTurns returns a client of whose watches one is decoded at a time.
func takeTurns(client *http.Client, place chan struct{}) *http.Client {
	turns := *client
	turns.Transport = turnsTransport{cmp.Or(client.Transport, http.DefaultTransport), place}
	return &turns
}

// RoundTrip implements http.RoundTripper.
func (t turnsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") {
		resp.Body = &turnsBody{ReadCloser: resp.Body, place: t.place}
	}
	return resp, err
}

type turnsBody struct {
	io.ReadCloser
	place  chan struct{}
	closed atomic.Bool
	leave  atomic.Pointer[func()]
}

func (b *turnsBody) end() {
	if leave := b.leave.Swap(nil); leave != nil {
		(*leave)()
	}
}

func (b *turnsBody) Read(p []byte) (int, error) {
	b.end()
	n, err := b.ReadCloser.Read(p)
	if n > 0 && err == nil {
		leave := takeDecoding(b.place)
		b.leave.Store(&leave)
		if b.closed.Load() { // there may be no other Read
			b.end()
		}
	}
	return n, err
}

func (b *turnsBody) Close() error {
	b.closed.Store(true)
	defer b.end()
	return b.ReadCloser.Close()
}
