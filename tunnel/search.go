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

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

const (
	// askPatience is how long a dial waits for a replica to say whether it has an
	// agent, if it can be heard: on a machine where thousands of agents connect
	// anew it may be far behind.
	askPatience = 15 * time.Second
	// askTimeout is how long one has to say so if it could not be heard lately,
	// or if there is somebody else to try.
	askTimeout = 2 * time.Second
	// meetPatience is how long one is waited for that is being connected for the
	// first time, and Peers for its first answer. It may be an address that does
	// not answer.
	meetPatience = 5 * time.Second
)

// search is the question to all peers whether they have an agent of a cluster.
type search struct {
	ctx      context.Context
	cancel   context.CancelFunc
	soon     *time.Timer // when a doubtful one is tried
	late     bool        // it was
	asking   sync.WaitGroup
	answers  chan answer
	pending  int
	doubtful []*outboundPeer // that have one which does not answer
	silent   int             // peers that did not answer
}

type answer struct {
	link *outboundPeer
	code Code
}

// search asks all peers at once, as soon as it is known who they are, and those
// that are being connected for the first time as soon as they are. The caller
// calls end.
func (p *peers) search(ctx context.Context, cluster string, patience time.Duration) *search {
	q := &search{}
	q.ctx, q.cancel = context.WithTimeout(ctx, patience)
	p.hear(q.ctx)
	unmet := p.unmet() // one that is met from here on is asked twice, and not never
	links := p.live()
	q.pending = len(links) + len(unmet)
	q.answers = make(chan answer, q.pending)
	q.soon = time.NewTimer(askTimeout)
	for _, l := range links {
		q.asking.Go(func() { q.answers <- answer{l, l.ask(q.ctx, cluster)} })
	}
	for _, peer := range unmet {
		q.asking.Go(func() { q.answers <- peer.ask(q.ctx, cluster) })
	}
	return q
}

// next returns the next replica that has an agent, the one that says so first;
// nil if there is none.
func (q *search) next() *outboundPeer {
	for q.pending > 0 && !(q.late && len(q.doubtful) > 0) {
		select {
		case a := <-q.answers: // they end with ctx
			q.pending--
			switch a.code {
			case 0:
				return a.link
			case CodeTimeout:
				q.doubtful = append(q.doubtful, a.link)
			case CodeLost:
				q.silent++
			}
		case <-q.soon.C:
			q.late = true
		}
	}
	if len(q.doubtful) == 0 {
		return nil
	}
	l := q.doubtful[0]
	q.doubtful = q.doubtful[1:]
	return l
}

// end waits for the questions that are under way.
func (q *search) end() {
	q.soon.Stop()
	q.cancel()
	q.asking.Wait()
}

// have reports whether a peer says that it has an agent of the cluster, and
// one that answers.
func (p *peers) have(ctx context.Context, cluster string) bool {
	q := p.search(ctx, cluster, askTimeout)
	defer q.end()
	for range q.pending {
		if a := <-q.answers; a.code == 0 {
			return true
		}
	}
	return false
}

// ask asks a peer once it is connected. One that can't be has no agent.
func (p *peer) ask(ctx context.Context, cluster string) answer {
	meeting, cancel := context.WithTimeout(ctx, meetPatience)
	l, err := p.awaitFirst(meeting)
	cancel()
	switch {
	case err != nil:
		return answer{code: CodeLost}
	case l == nil:
		return answer{code: codeNotHere}
	}
	return answer{l, l.ask(ctx, cluster)}
}

// ask returns what the peer says: zero if it has an agent that answers. It is
// CodeLost if the peer says nothing: until ctx ends, or until it can't be heard.
func (l *outboundPeer) ask(ctx context.Context, cluster string) Code {
	if l.IsSuspect() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	l.countStream()
	stream, m, err := l.Exchange(ctx, wire.New(wire.MsgAsk).AddString(wire.TagCluster, cluster), func(context.Context) bool { return true })
	if err != nil {
		return CodeLost
	}
	stream.Close()
	if m.Kind != wire.MsgHave {
		return CodeLost
	}
	return messageCode(m)
}

// unasked says why there may be an agent of which the search did not hear;
// silent is how many replicas did not answer. It is nil if all have. The causes
// are there as text only: what errors.Is finds in them is not true of the dial.
func (p *peers) unasked(silent int) error {
	var why []string
	if err := p.memberError(); err != nil {
		why = append(why, "can't learn who the other replicas are: "+wire.Printable(err.Error()))
	}
	failed := slices.DeleteFunc(p.status(), func(r peerStatus) bool { return r.Connected || r.err == nil })
	switch first := max(slices.IndexFunc(failed, peerStatus.mistaken), 0); len(failed) {
	case 0:
	case 1:
		why = append(why, fmt.Sprintf("the replica at %s can't be asked: %s", failed[0].Address, failed[0].reason()))
	default:
		why = append(why, fmt.Sprintf("%d of the other replicas can't be asked (at %s: %s)", len(failed), failed[first].Address, failed[first].reason()))
	}
	if silent > 0 {
		why = append(why, fmt.Sprintf("%d of the other replicas did not answer", silent))
	}
	if why == nil {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

// mistaken reports whether somebody has to change a configuration for the
// replica to be connected: time does not heal that.
func (r peerStatus) mistaken() bool {
	switch codeOf(r.err) {
	case CodeConfig, CodeVersion, CodeBadCertificate, CodeServerCertificate:
		return true
	}
	var outer *tls.CertificateVerificationError
	return errors.As(r.err, &outer)
}

// reason is LastError without what was tried.
func (r peerStatus) reason() string {
	if e := (*Error)(nil); errors.As(r.err, &e) {
		return wire.Printable(e.reason())
	}
	return wire.Printable(r.err.Error())
}
