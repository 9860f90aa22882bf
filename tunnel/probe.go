package tunnel

import (
	"context"
	"time"
)

// A probe is one ping that any number of dials wait for.
type probe struct {
	done chan struct{}
	ok   bool // once done
}

// aliveFor is how long a sign of life is good for.
const aliveFor = time.Second

// load is what a session is burdened with: open streams, dials that have no
// answer yet included.
func (sess *session) load() int {
	return max(sess.mux.Stats().Streams-1, 0) // the control stream is no burden
}

// suspected reports whether the last probe failed and nothing came since.
func (sess *session) suspected() bool {
	at := sess.suspect.Load()
	return at != 0 && sess.mux.Stats().LastRead.UnixNano() <= at
}

func (sess *session) markSuspect() { sess.suspect.Store(time.Now().UnixNano()) }

// alive reports whether something came just now, or else comes in answer to a
// probe: this one's or one that is on its way. The end of ctx is no answer.
func (sess *session) alive(ctx context.Context) bool {
	if time.Since(sess.mux.Stats().LastRead) < aliveFor {
		return true
	}
	sess.mu.Lock()
	p := sess.probing
	first := p == nil
	if first {
		p = &probe{done: make(chan struct{})}
		sess.probing = p
	}
	sess.mu.Unlock()
	if first && !sess.group.Go(func() { sess.probe(p) }) {
		sess.probed(p, true) // the session ends anyway
	}
	select {
	case <-p.done:
		return p.ok
	case <-ctx.Done():
		return false
	}
}

func (sess *session) probe(p *probe) {
	ctx, cancel := context.WithTimeout(sess.group.Context(), probeTimeout)
	defer cancel()
	began := time.Now()
	_, err := sess.mux.Ping(ctx)
	ok := err == nil || sess.mux.Stats().LastRead.After(began)
	if !ok {
		sess.markSuspect()
	}
	sess.probed(p, ok)
}

func (sess *session) probed(p *probe, ok bool) {
	p.ok = ok
	sess.mu.Lock()
	sess.probing = nil
	sess.mu.Unlock()
	close(p.done)
}
