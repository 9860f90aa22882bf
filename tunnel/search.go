package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// search is the question to all replicas: do you have an agent of this cluster?
type search struct {
	ctx     context.Context
	cancel  context.CancelFunc
	asking  sync.WaitGroup
	answers chan searchAnswer
	pending int // answers that have not come
	silent  int // replicas that did not answer

	zone        string           // this replica's own; may be empty
	holders     []*outboundPeer  // that have answered, those in the zone first
	suspects    []*outboundPeer  // those whose agent does not answer at the moment
	trySuspects <-chan time.Time // they are tried when it fires, or when all have answered
	fired       bool
}

type searchAnswer struct {
	link *outboundPeer
	code Code
}

// startSearch asks all replicas at once, as soon as Peers has named them. A replica
// that is being connected for the first time is asked once it is connected. The
// caller calls stop.
func (p *peers) startSearch(ctx context.Context, cluster string, patience time.Duration) *search {
	q := &search{zone: p.ownZone()}
	q.ctx, q.cancel = context.WithTimeout(ctx, patience)
	p.awaitList(q.ctx)
	untried := p.untriedPeers() // before connected, so that none is left out; one may be asked twice
	links := p.connectedPeers()
	q.pending = len(links) + len(untried)
	q.answers = make(chan searchAnswer, q.pending)
	q.trySuspects = time.After(wire.AskTimeout)
	for _, l := range links {
		q.asking.Go(func() { q.answers <- searchAnswer{l, l.askForAgent(q.ctx, cluster)} })
	}
	for _, peer := range untried {
		q.asking.Go(func() { q.answers <- peer.askForAgent(q.ctx, cluster) })
	}
	return q
}

// nextHolder returns the next replica that has an agent, in the order of their
// answers; nil after the last. If several have answered, one in this replica's zone
// comes first.
func (q *search) nextHolder() *outboundPeer {
	for q.pending > 0 && !(q.fired && len(q.suspects) > 0) && (len(q.holders) == 0 || len(q.answers) > 0) {
		select {
		case a := <-q.answers: // all come before ctx ends, or then
			q.pending--
			switch a.code {
			case 0:
				q.addHolder(a.link)
			case CodeTimeout:
				q.suspects = append(q.suspects, a.link)
			case CodeLost:
				q.silent++
			}
		case <-q.trySuspects:
			q.fired = true
		}
	}
	queue := &q.holders
	if len(q.holders) == 0 {
		queue = &q.suspects
	}
	if len(*queue) == 0 {
		return nil
	}
	l := (*queue)[0]
	*queue = (*queue)[1:]
	return l
}

func (q *search) addHolder(l *outboundPeer) {
	at := len(q.holders)
	if q.zone != "" && l.zone() == q.zone {
		at = 0
	}
	q.holders = slices.Insert(q.holders, at, l)
}

// stop cancels the questions that are under way, and waits for them.
func (q *search) stop() {
	q.cancel()
	q.asking.Wait()
}

// anyHas reports whether a replica says that it has an agent of the cluster, and
// one that answers.
func (p *peers) anyHas(ctx context.Context, cluster string) bool {
	q := p.startSearch(ctx, cluster, wire.AskTimeout)
	defer q.stop()
	for range q.pending {
		if a := <-q.answers; a.code == 0 {
			return true
		}
	}
	return false
}

// askForAgent asks a replica once it is connected. One that can't be connected has no
// agent.
func (p *peer) askForAgent(ctx context.Context, cluster string) searchAnswer {
	connecting, cancel := context.WithTimeout(ctx, wire.ConnectTimeout)
	l, err := p.awaitFirst(connecting)
	cancel()
	switch {
	case err != nil:
		return searchAnswer{code: CodeLost}
	case l == nil:
		return searchAnswer{code: codeNotHere}
	}
	return searchAnswer{l, l.askForAgent(ctx, cluster)}
}

// askForAgent returns the replica's answer: zero if it has an agent that answers. It is
// CodeLost if no answer comes until ctx ends, or until the replica is suspect.
func (l *outboundPeer) askForAgent(ctx context.Context, cluster string) Code {
	if l.IsSuspect() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wire.AskTimeout)
		defer cancel()
	}
	l.countStream()
	stream, m, err := l.Exchange(ctx, session.Caller{}, wire.New(wire.MsgAsk).AddString(wire.TagCluster, cluster), nil, func(context.Context) bool { return true })
	if err != nil {
		return CodeLost
	}
	stream.Close()
	if m.Kind != wire.MsgHave {
		return CodeLost
	}
	return messageCode(m)
}

// missingAnswers returns why there may be an agent although no replica has said so;
// silent is how many replicas did not answer. It is nil if all have answered. The
// causes are in it as text only, so that errors.Is does not find them: they are not
// the causes of the dial's failure.
func (p *peers) missingAnswers(silent int) error {
	var why []string
	if err := p.memberError(); err != nil {
		why = append(why, "can't learn who the other replicas are: "+printable.Text(err.Error(), printable.Most))
	}
	failed := slices.DeleteFunc(p.statusRows(), func(r peerStatus) bool { return r.Connected || r.err == nil })
	switch first := max(slices.IndexFunc(failed, peerStatus.isMisconfigured), 0); len(failed) {
	case 0:
	case 1:
		why = append(why, fmt.Sprintf("the replica at %s can't be asked: %s", failed[0].Address, failed[0].shortReason()))
	default:
		why = append(why, fmt.Sprintf("%d of the other replicas can't be asked (at %s: %s)", len(failed), failed[first].Address, failed[first].shortReason()))
	}
	if silent > 0 {
		why = append(why, fmt.Sprintf("%d of the other replicas did not answer", silent))
	}
	if why == nil {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

// isMisconfigured reports whether the replica can be connected only after somebody has
// changed a configuration.
func (r peerStatus) isMisconfigured() bool {
	switch codeOf(r.err) {
	case CodeConfig, CodeVersion, CodeBadCertificate, CodeServerCertificate:
		return true
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](r.err)
	return untrusted
}

// shortReason is LastError without the operation and the address.
func (r peerStatus) shortReason() string {
	if e, ok := errors.AsType[*Error](r.err); ok {
		return printable.Text(e.reasonText(), printable.Most)
	}
	return printable.Text(r.err.Error(), printable.Most)
}

// maxKnown bounds holders: some megabytes.
const maxKnown = 10_000

// holders is what this replica knows of who has an agent of a cluster, so that not every
// dial asks all other replicas. Each tells all others when an agent comes.
type holders struct {
	mu    sync.Mutex         // guards the fields below
	known map[string]finding // by cluster
	news  uint64             // how often forget and forgetAll were called
}

// finding is the replica that has an agent of a cluster; a nil link: none has.
type finding struct {
	link  *outboundPeer
	until time.Time
}

// beginSearch returns a number for remember.
func (h *holders) beginSearch() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.news
}

// recall returns the replica that had an agent of the cluster a moment ago, or none if all
// others had none.
func (h *holders) recall(cluster string) (l *outboundPeer, none bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, ok := h.known[cluster]
	if !ok || time.Now().After(f.until) || f.link != nil && !f.link.TakesStreams() {
		delete(h.known, cluster)
		return nil, false
	}
	return f.link, f.link == nil
}

// remember notes which replica has an agent of the cluster, or nil if no other one has,
// unless there was news since beginSearch.
func (h *holders) remember(cluster string, l *outboundPeer, began uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	life := wire.FoundFor
	if l == nil {
		life = wire.NoneFor
	}
	if l == nil && h.news != began || l != nil && !l.TakesStreams() {
		return
	}
	if h.known == nil || len(h.known) >= maxKnown {
		h.known = map[string]finding{}
	}
	h.known[cluster] = finding{l, time.Now().Add(life)}
}

// forget is called when another replica has an agent of the cluster, with a nil link, or
// when that replica has none any more.
func (h *holders) forget(cluster string, l *outboundPeer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news++
	if l == nil || h.known[cluster].link == l {
		delete(h.known, cluster)
	}
}

// forgetAll is called when a replica comes or goes.
func (h *holders) forgetAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news++
	clear(h.known)
}
