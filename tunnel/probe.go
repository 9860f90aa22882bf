package tunnel

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// prober finds out whether the other end of a session is there.
type prober struct {
	mux     *mux.Session
	group   *group.Group // of who probes
	suspect atomic.Int64 // unix nanoseconds of the last probe that failed

	probes  sync.Mutex // guards the field below
	probing *probe
}

// A probe is one ping that any number of dials wait for.
type probe struct {
	done chan struct{}
	ok   bool // once done
}

// aliveFor is how long a sign of life is good for.
const aliveFor = time.Second

// load is what a session is burdened with: open streams, dials that have no
// answer yet included.
func (p *prober) load() int {
	return max(p.mux.Stats().Streams-1, 0) // the control stream is no burden
}

func (p *prober) ended() bool {
	select {
	case <-p.mux.Done():
		return true
	default:
		return false
	}
}

// suspected reports whether the last probe failed and nothing came since.
func (p *prober) suspected() bool {
	at := p.suspect.Load()
	return at != 0 && p.mux.Stats().LastRead.UnixNano() <= at
}

func (p *prober) markSuspect() { p.suspect.Store(time.Now().UnixNano()) }

// alive reports whether something came just now, or else comes in answer to a
// probe: this one's or one that is on its way. The end of ctx is no answer.
func (p *prober) alive(ctx context.Context) bool {
	if time.Since(p.mux.Stats().LastRead) < aliveFor {
		return true
	}
	p.probes.Lock()
	pr := p.probing
	first := pr == nil
	if first {
		pr = &probe{done: make(chan struct{})}
		p.probing = pr
	}
	p.probes.Unlock()
	if first && !p.group.Go(func() { p.probe(pr) }) {
		p.probed(pr, true) // the session ends anyway
	}
	select {
	case <-pr.done:
		return pr.ok
	case <-ctx.Done():
		return false
	}
}

func (p *prober) probe(pr *probe) {
	ctx, cancel := context.WithTimeout(p.group.Context(), probeTimeout)
	defer cancel()
	began := time.Now()
	_, err := p.mux.Ping(ctx)
	ok := err == nil || p.mux.Stats().LastRead.After(began)
	if !ok {
		p.markSuspect()
	}
	p.probed(pr, ok)
}

func (p *prober) probed(pr *probe, ok bool) {
	pr.ok = ok
	p.probes.Lock()
	p.probing = nil
	p.probes.Unlock()
	close(pr.done)
}

// await reads the answer to a dial. A session that is silent is probed, again and
// again, and left when it does not answer and another says that there is somebody
// else. What comes first counts: an answer is not taken back.
func (p *prober) await(ctx context.Context, stream *mux.Stream, another func(context.Context) bool) (*wire.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	var decided atomic.Bool
	watched := make(chan struct{})
	watch := time.AfterFunc(suspectAfter, func() {
		defer close(watched)
		for ctx.Err() == nil {
			if !p.alive(ctx) && ctx.Err() == nil && another(ctx) {
				if !decided.Swap(true) {
					stream.Reset(uint32(CodeLost))
				}
				return
			}
			sleep(ctx, aliveFor)
		}
	})
	m, err := wire.Read(stream, wire.MaxRequest)
	late := decided.Swap(true)
	cancel()
	if !watch.Stop() {
		<-watched
	}
	if late && err == nil {
		return nil, &mux.ResetError{Code: uint32(CodeLost)} // it was left meanwhile
	}
	return m, err
}
