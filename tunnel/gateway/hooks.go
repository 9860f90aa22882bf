package gateway

import "time"

// Hooks see what a Gateway does. Each may be nil; each is called by the
// goroutine at work and must return soon.
//
// An access log is Ended and Failed: each connection, or HTTP/2 stream, that asked
// for something ends with one of them. HTTP/1 clients that show credentials only
// when they are asked for them are in Failed before.
type Hooks struct {
	// Dialed is called when Dial has returned, with the time it took.
	Dialed func(r Request, took time.Duration, err error)
	// Ended is called at the end of a connection that was relayed. The Request
	// says who it was (Client), from where (Credentials.Remote), and what was
	// reached (Cluster, Address).
	Ended func(r Request, e Ended)
	// Failed is called for each client that got no connection. Err is an
	// *[Error], whose Request says as much as is known. Strangers can have it
	// called thousands of times a second: sum up what has no Client before it is
	// logged.
	Failed func(err error)
}

// Ended is what became of a connection that was relayed.
type Ended struct {
	In, Out int64 // bytes from and to the client
	Took    time.Duration
	// Err is what ended it; nil if both sides ended in order.
	Err error
}

func (h *Hooks) dialed(r Request, took time.Duration, err error) {
	if h.Dialed != nil {
		h.Dialed(r, took, err)
	}
}

func (h *Hooks) ended(r Request, e Ended) {
	if h.Ended != nil {
		h.Ended(r, e)
	}
}

func (h *Hooks) failed(err error) {
	if h.Failed != nil {
		h.Failed(err)
	}
}
