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

// load is what a session is burdened with: open streams, and dials that will
// be one.
func (sess *session) load() int64 {
	return int64(sess.mux.Stats().Streams)
}

// suspected reports whether the last probe failed and nothing came since.
func (sess *session) suspected() bool {
	at := sess.suspect.Load()
	return at != 0 && sess.mux.Stats().LastRead.UnixNano() <= at
}

func (sess *session) markSuspect() { sess.suspect.Store(time.Now().UnixNano()) }

// alive probes the session, unless a probe is on its way, and reports whether
// it answered. The end of ctx is no answer.
func (sess *session) alive(ctx context.Context) bool {
	sess.mu.Lock()
	p := sess.probing
	first := p == nil
	if first {
		p = &probe{done: make(chan struct{})}
		sess.probing = p
	}
	sess.mu.Unlock()
	if first && !sess.group.start(func() { sess.probe(p) }) {
		return true // the session ends anyway
	}
	select {
	case <-p.done:
		return p.ok
	case <-ctx.Done():
		return false
	}
}

func (sess *session) probe(p *probe) {
	ctx, cancel := context.WithTimeout(sess.group.ctx, probeTimeout)
	defer cancel()
	_, err := sess.mux.Ping(ctx)
	if p.ok = err == nil; !p.ok {
		sess.markSuspect()
	}
	sess.mu.Lock()
	sess.probing = nil
	sess.mu.Unlock()
	close(p.done)
}
