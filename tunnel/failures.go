package tunnel

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// DialFailures are the dials to a cluster that failed with the same Code.
type DialFailures struct {
	Cluster string `json:"cluster"`
	Code    Code   `json:"code"`
	Reason  string `json:"reason"` // the Code in words
	Side    Side   `json:"side"`
	Count   uint64 `json:"count"`
	// Last is when the last of them failed, Text why, Target what it was for, and Caller
	// who asked for it; see [WithCaller].
	Last   time.Time `json:"last"`
	Text   string    `json:"text"`
	Target string    `json:"target"`
	Caller string    `json:"caller,omitempty"`
}

// Side says where to look for the cause of a dial's failure.
type Side string

const (
	// SidePolicy: the agent's Targets or the Server's AllowDial do not allow the dial.
	SidePolicy Side = "policy"
	// SideTarget: the agent has tried, and the target, its name or the way to it is the
	// trouble. A dial that got no answer in time is one, too.
	SideTarget Side = "target"
	// SideTunnel: no agent was connected, the session was lost, or it was busy.
	SideTunnel Side = "tunnel"
	// SideCaller: the caller gave up, or asked for what is no address.
	SideCaller Side = "caller"
)

type callerKey struct{}

// WithCaller returns a context for the dials of one caller: a client's name, or its
// address without the port. Callers have equal shares of an agent's session, in both
// directions, however many connections each has. Dials without a caller are those of one
// more. [Status] shows the caller of a dial that fails, so it must be no secret. Agents
// and other replicas see a number in its place.
func WithCaller(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

func callerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}

// shareSeed keeps an agent from finding out a caller by its number.
var shareSeed = maphash.MakeSeed()

// shareOf returns the number that stands for the context's caller of the cluster: zero without one.
func shareOf(ctx context.Context, cluster string) uint64 {
	caller := callerOf(ctx)
	if caller == "" {
		return 0
	}
	return maphash.String(shareSeed, cluster+"\x00"+caller)
}

const (
	// keepFailures is how long failures are kept after the last of them.
	keepFailures = 24 * time.Hour
	// maxFailing is of how many clusters they are kept. A caller may name any of the namespaces
	// that it has rights in.
	maxFailing = 5000
)

// dialFailures are the failed dials of a Server. The zero value is empty.
type dialFailures struct {
	mu       sync.Mutex // guards the field below
	clusters map[string][]DialFailures
}

// record counts a dial that has failed.
func (f *dialFailures) record(ctx context.Context, cluster string, err error) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Op != "dial" || wire.CheckCluster(cluster) != nil { // a client may have made it up
		return
	}
	one := DialFailures{
		Cluster: cluster, Code: e.Code, Reason: e.Code.String(), Side: e.Code.Side(),
		Count: 1, Last: time.Now(), Text: printable.Text(e.reasonText(), printable.Most), Target: printable.Text(e.Addr, printable.Most), Caller: printable.Text(callerOf(ctx), printable.Most),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	its, known := f.clusters[cluster]
	if !known && len(f.clusters) >= maxFailing {
		f.dropOneLocked()
	}
	if f.clusters == nil {
		f.clusters = map[string][]DialFailures{}
	}
	if i := slices.IndexFunc(its, func(d DialFailures) bool { return d.Code == e.Code }); i >= 0 {
		one.Count += its[i].Count
		its = slices.Delete(its, i, i+1)
	}
	f.clusters[cluster] = slices.Insert(its, 0, one) // the latest first
}

// dropOneLocked forgets the cluster that failed first of the namespace that has most of them.
func (f *dialFailures) dropOneLocked() {
	of := map[string]int{}
	for cluster := range f.clusters {
		of[path.Dir(cluster)]++
	}
	most, first := 0, ""
	for cluster, its := range f.clusters {
		if n := of[path.Dir(cluster)]; n > most || n == most && its[0].Last.Before(f.clusters[first][0].Last) {
			most, first = n, cluster
		}
	}
	delete(f.clusters, first)
}

// all returns the failures by cluster, the latest first, and forgets old ones.
func (f *dialFailures) all() []DialFailures {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []DialFailures
	for cluster, its := range f.clusters {
		if time.Since(its[0].Last) > keepFailures {
			delete(f.clusters, cluster)
			continue
		}
		all = append(all, its...)
	}
	slices.SortStableFunc(all, func(a, b DialFailures) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}

// Refusals are carriers, enrolments and renewals that a Server has refused for the same
// reason. Strangers cause most of them.
type Refusals struct {
	Op     string `json:"op"` // of the [Error]
	Code   Code   `json:"code"`
	Reason string `json:"reason"` // the Code in words
	Count  uint64 `json:"count"`
	// Last is when the last of them was refused, Text why, and Remote where it came from.
	Last   time.Time `json:"last"`
	Text   string    `json:"text"` // with the cluster, if a token or certificate has proven one
	Remote string    `json:"remote"`
}

// refusals are those of a Server, the latest first. The zero value is empty.
type refusals struct {
	mu   sync.Mutex // guards the field below
	list []Refusals // few, since each has another Op or Code
}

// reportRefused counts, and calls the hook.
func (s *Server) reportRefused(remote net.Addr, err error) {
	if e, ok := errors.AsType[*Error](err); ok && e.Code != CodeHeld { // which is no failure
		s.refusals.record(remote, e)
	}
	callHook2(s.Hooks.Refused, remote, err)
}

func (r *refusals) record(remote net.Addr, e *Error) {
	text := e.reasonText()
	if e.Cluster != "" {
		text = e.Cluster + ": " + text
	}
	one := Refusals{Op: e.Op, Code: e.Code, Reason: e.Code.String(), Count: 1, Last: time.Now(), Text: printable.Text(text, printable.Most), Remote: remote.String()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.list, func(o Refusals) bool { return o.Op == e.Op && o.Code == e.Code }); i >= 0 {
		one.Count += r.list[i].Count
		r.list = slices.Delete(r.list, i, i+1)
	}
	r.list = slices.Insert(r.list, 0, one)
}

// all returns the refusals, and forgets old ones.
func (r *refusals) all() []Refusals {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(o Refusals) bool { return time.Since(o.Last) > keepFailures })
	return slices.Clone(r.list)
}
