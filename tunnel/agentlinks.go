package tunnel

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// run keeps sessions with two servers, or with one where there is one, until
// ctx ends.
func (r *runner) run(ctx context.Context) {
	r.plan(0)
	for ctx.Err() == nil {
		r.look()
		switch {
		case !r.lacking():
			r.nextTry = time.Time{}
		case r.nextTry.IsZero(): // another server is wanted
			r.plan(r.inTime(r.search()))
		case !time.Now().Before(r.nextTry):
			r.try(ctx)
			continue
		}
		r.wait(ctx)
	}
	if r.renewing != nil {
		<-r.renewing.done
	}
}

// look drops the links that take no more streams, and plans for others in
// their place.
func (r *runner) look() {
	r.live = slices.DeleteFunc(r.live, func(l *serverSession) bool {
		if l.TakesStreams() {
			if l.takeNewNames() {
				r.plan(r.search())
			}
			return false
		}
		r.search()
		r.plan(r.backoff.Next(time.Since(l.Since)))
		return true
	})
}

// try tries a server.
func (r *runner) try(ctx context.Context) {
	r.nextTry = time.Time{}
	held := r.names()
	l, server, err := r.connect(ctx, held)
	switch {
	case err == nil:
		r.admit(l)
	case ctx.Err() != nil:
	case len(held) > 0 && codeOf(err) == CodeHeld:
		// Whoever picked the server, a load balancer say, picks another time.
		r.plan(r.searchBackoff.Next(0))
	default:
		wait := r.backoff.Next(0)
		r.plan(wait)
		r.reportFailure(server, err, wait)
	}
}

// wait returns when there may be something to do.
func (r *runner) wait(ctx context.Context) {
	next := time.Hour // without a plan
	if !r.nextTry.IsZero() {
		next = time.Until(r.nextTry)
	}
	l, in := r.nextRenewal()
	if l != nil {
		next = min(next, in)
	}
	var renewed chan error
	if r.renewing != nil {
		renewed = r.renewing.done
	}
	t := time.NewTimer(next)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-r.changed:
	case err := <-renewed:
		r.endRenewal(ctx, err)
	case <-t.C:
		if l != nil && in <= next {
			r.startRenewal(ctx, l)
		}
	}
}

// wakeRun has Run's goroutine look at the sessions.
func (r *runner) wakeRun() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// plan plans an attempt after the wait, unless there is to be one before.
func (r *runner) plan(wait time.Duration) {
	if at := time.Now().Add(wait); r.nextTry.IsZero() || at.Before(r.nextTry) {
		r.nextTry = at
	}
}

// search begins to look for another server, and returns how long to wait first:
// those who hear of one at the same moment come to it spread over FirstBackoff.
// Then they are quick, since of few servers it takes few tries to find another,
// and slow down: a load balancer that always picks the same server is to have
// little of it from thousands of agents.
func (r *runner) search() time.Duration {
	first := cmp.Or(r.FirstBackoff, 4*time.Second)
	r.searchBackoff = backoff.Backoff{First: first / 4, Max: 10 * cmp.Or(r.MaxBackoff, 30*time.Second), Factor: 1.25}
	spread := backoff.Backoff{First: first, Max: r.MaxBackoff}
	return spread.Next(0)
}

// inTime bounds the wait before a session takes the place of one whose certificate
// ends soon: at another server than the new session's, its streams end with it.
func (r *runner) inTime(wait time.Duration) time.Duration {
	for _, l := range r.live {
		if r.stale(l) && r.held().external != nil {
			wait = min(wait, max(time.Until(l.cert.NotAfter)/2, 0))
		}
	}
	return wait
}

// stale reports whether the link was made with an older certificate.
func (r *runner) stale(l *serverSession) bool { return l.cert != r.held().Chain[0] }

// lacking reports whether another session is needed. Those with an older
// certificate are to be replaced.
func (r *runner) lacking() bool {
	return r.fresh() < r.wanted()
}

func (r *runner) fresh() (n int) {
	for _, l := range r.live {
		if !r.stale(l) {
			n++
		}
	}
	return n
}

// wanted is how many servers to have sessions with: two, if those that there
// are know of two.
func (r *runner) wanted() int {
	one := ""
	for _, l := range r.live {
		for _, name := range l.knownServers() {
			if one != "" && name != one {
				return 2
			}
			one = name
		}
	}
	return 1
}

// names are those of the servers that need no other session.
func (r *runner) names() (held []string) {
	for _, l := range r.live {
		if l.name != "" && !r.stale(l) {
			held = append(held, l.name)
		}
	}
	return held
}

// admit takes a new link in, in the place of the same server's, or of those
// with an older certificate: of one for each, and of all with the last.
func (r *runner) admit(l *serverSession) {
	r.live = append(r.live, l)
	replaced := r.retire(func(old *serverSession) bool { return old.name == l.name && old != l })
	if !r.lacking() {
		r.retire(r.stale)
		return
	}
	if i := slices.IndexFunc(r.live, r.stale); i >= 0 && !replaced {
		r.live[i].Retire()
		r.live = slices.Delete(r.live, i, i+1)
	}
}

// retire takes those out that which reports; it reports whether there was any.
func (r *runner) retire(which func(*serverSession) bool) (any bool) {
	r.live = slices.DeleteFunc(r.live, func(l *serverSession) bool {
		if !which(l) {
			return false
		}
		l.Retire()
		any = true
		return true
	})
	return any
}

// maxServers is how many names of servers an agent keeps of each.
const maxServers = 100

// serverNames are those in a WELCOME or SERVERS.
func serverNames(m *wire.Message) (names []string) {
	m.Each(wire.TagServer, func(b []byte) {
		if len(b) > 0 && len(b) <= wire.MaxReplica && len(names) < maxServers {
			names = append(names, string(b))
		}
	})
	return names
}

// learnServers takes the names in a SERVERS for those of the servers that there are.
func (l *serverSession) learnServers(m *wire.Message) {
	names := serverNames(m)
	l.state.Lock()
	for _, name := range names {
		l.newNames = l.newNames || !slices.Contains(l.servers, name)
	}
	l.servers = names
	l.state.Unlock()
	l.runner.wakeRun()
}

// knownServers are the names of the servers that there are, as this one knows. They
// must not be changed.
func (l *serverSession) knownServers() []string {
	l.state.Lock()
	defer l.state.Unlock()
	return l.servers
}

// takeNewNames reports whether a server was named since it was last called.
func (l *serverSession) takeNewNames() (any bool) {
	l.state.Lock()
	defer l.state.Unlock()
	any, l.newNames = l.newNames, false
	return any
}
