package tunnel

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// run keeps sessions with two servers, or with one if there is only one, until ctx
// ends.
func (r *runner) run(ctx context.Context) {
	r.planTry(0)
	for ctx.Err() == nil {
		r.refreshSessions()
		switch {
		case !r.needsServer():
			r.nextTry = time.Time{}
		case r.nextTry.IsZero(): // no attempt is planned yet
			r.planTry(r.startSearch())
		case !time.Now().Before(r.nextTry):
			wait := r.takeAttempt()
			if wait == 0 {
				r.tryServer(ctx)
				continue
			}
			r.nextTry = time.Now().Add(wait)
		}
		r.awaitWork(ctx)
	}
	if r.renewing != nil {
		<-r.renewing.done
	}
}

// refreshSessions drops the sessions that take no more streams, and plans attempts to
// replace them. One whose server has sent MOVE is left once it is replaced, and stays if it
// is the only one.
func (r *runner) refreshSessions() {
	for _, l := range r.live {
		another := func(other *serverSession) bool { return other != l && !other.leaving && other.TakesStreams() }
		l.leaving = (l.moving.Swap(false) || l.leaving) && slices.ContainsFunc(r.live, another)
	}
	r.live = slices.DeleteFunc(r.live, func(l *serverSession) bool {
		if l.TakesStreams() {
			if l.newNames.Swap(false) {
				r.planTry(r.startSearch())
			}
			return false
		}
		r.startSearch()
		if l.Closed() { // and not one that drains
			r.addrs.Prefer(l.reached, true)
		}
		lived := time.Since(l.Since)
		if l.carried.Load() {
			lived = math.MaxInt64
		}
		r.planTry(r.backoff.Next(lived))
		return true
	})
}

// quickAttempts is how many attempts an agent may make at once; after them it makes one in
// FirstBackoff. Searches and failures are slower than that, so it only holds up an agent
// whose servers ask for sessions and end them again and again.
const quickAttempts = 10

// takeAttempt returns zero if an attempt may begin now, and else when to ask again.
func (r *runner) takeAttempt() time.Duration {
	each, now := cmp.Or(r.FirstBackoff, 4*time.Second), time.Now()
	if wait := r.attempted.Add(-(quickAttempts - 1) * each).Sub(now); wait > 0 {
		return wait
	}
	r.attempted = now.Add(max(r.attempted.Sub(now), 0) + each)
	return 0
}

// tryServer tries to open another session.
func (r *runner) tryServer(ctx context.Context) {
	r.nextTry = time.Time{}
	held := r.heldNames()
	var l *serverSession
	var server string
	var err error
	onOwnStack(func() { l, server, err = r.attemptServer(ctx, held) }) // this goroutine then waits for hours
	switch {
	case err == nil:
		r.addLive(l)
		if slices.Contains(held, l.name) { // though the agent has said that it has it
			r.searchTries++
			r.planTry(r.searchBackoff.Next(0))
		}
	case ctx.Err() != nil:
	case len(held) > 0 && codeOf(err) == CodeHeld:
		// The next time, a load balancer may pick another server.
		r.searchTries++
		r.planTry(r.searchBackoff.Next(0))
	default:
		var wait time.Duration // none before the other addresses of a name have had their turn
		if !r.addrs.Left() || !slices.Contains(addressCodes, codeOf(err)) {
			wait = r.backoff.Next(0)
		}
		r.planTry(wait)
		r.reportFailure(server, err, wait)
	}
}

// addressCodes are those of failures that another address of the name may not have.
var addressCodes = []Code{CodeLost, CodeTimeout, CodePin, CodeServerCertificate}

// awaitWork returns when there may be something to do.
func (r *runner) awaitWork(ctx context.Context) {
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
	select {
	case <-ctx.Done():
	case <-r.changed:
	case err := <-renewed:
		r.endRenewal(ctx, err)
	case <-time.After(next):
		if l != nil && in <= next {
			r.startRenewal(ctx, l)
		}
	}
}

// wakeRun ends awaitWork.
func (r *runner) wakeRun() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// planTry plans an attempt after the wait, unless an earlier one is planned.
func (r *runner) planTry(wait time.Duration) {
	if at := time.Now().Add(wait); r.nextTry.IsZero() || at.Before(r.nextTry) {
		r.nextTry = at
	}
}

// startSearch begins to look for another server, and returns how long to wait first:
// all agents hear of a new server at the same time, and so spread over FirstBackoff.
// The next attempts are quick, since among few servers another one is found soon. Then
// they slow down, for a load balancer that sends thousands of agents to the same
// server each time.
func (r *runner) startSearch() time.Duration {
	first := cmp.Or(r.FirstBackoff, 4*time.Second)
	r.searchTries = 0
	r.searchBackoff = backoff.Backoff{First: first / 4, Max: 10 * cmp.Or(r.MaxBackoff, 30*time.Second), Factor: 1.25}
	spread := backoff.Backoff{First: first, Max: r.MaxBackoff}
	return spread.Next(0)
}

// zoneTries is how many tries of a search, some 10 seconds, are for a server in another
// zone. Of 4 servers in 2 zones, 63 of 64 agents find one.
const zoneTries = 6

// isStale reports whether the session was opened with an older certificate.
func (r *runner) isStale(l *serverSession) bool { return l.cert != r.held().Chain[0] }

// isOutdated reports whether another session is to replace this one.
func (r *runner) isOutdated(l *serverSession) bool { return l.leaving || r.isStale(l) }

// needsServer reports whether another session is needed. Outdated ones don't count.
func (r *runner) needsServer() bool {
	fresh := slices.DeleteFunc(slices.Clone(r.live), r.isOutdated)
	return len(fresh) < r.wantedServers()
}

// wantedServers returns how many servers to have sessions with: two, if the present
// ones know two names.
func (r *runner) wantedServers() int {
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

// heldNames returns the names of the servers with which there is a session that is kept.
func (r *runner) heldNames() (held []string) {
	for _, l := range r.live {
		if l.name != "" && !r.isOutdated(l) {
			held = append(held, l.name)
		}
	}
	return held
}

// addLive adds a new session. It replaces one with the same server, or else one that is
// stale. Once no other session is needed, it replaces all outdated ones.
func (r *runner) addLive(l *serverSession) {
	r.live = append(r.live, l)
	replaced := r.retireMatching(func(old *serverSession) bool { return old.name == l.name && old != l })
	if !r.needsServer() {
		r.retireMatching(r.isOutdated)
		return
	}
	if i := slices.IndexFunc(r.live, r.isStale); i >= 0 && !replaced {
		r.live[i].Retire()
		r.live = slices.Delete(r.live, i, i+1)
	}
}

// retireMatching retires and removes the sessions that match. It reports whether there
// was one.
func (r *runner) retireMatching(which func(*serverSession) bool) (any bool) {
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

// maxServers is how many names an agent keeps of those that a server sends.
const maxServers = 100

// serverNames returns the names in a WELCOME or SERVERS.
func serverNames(m *wire.Message) (names []string) {
	for b := range m.All(wire.TagServer) {
		if wire.CheckReplica(string(b)) == nil && len(names) < maxServers {
			names = append(names, string(b))
		}
	}
	return names
}

// learnServers replaces the known names by those of a SERVERS.
func (l *serverSession) learnServers(m *wire.Message) {
	names := serverNames(m)
	l.state.Lock()
	if slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(l.servers, name) }) {
		l.newNames.Store(true)
	}
	l.servers = names
	l.state.Unlock()
	l.runner.wakeRun()
}

// knownServers returns the names of the servers that this one knows. The slice must not
// be changed.
func (l *serverSession) knownServers() []string {
	l.state.Lock()
	defer l.state.Unlock()
	return l.servers
}
