package tunnel

import "runtime"

// line is where handshakes wait for their turn to compute. As many as there are
// processors do at once: if all of a thousand did, each session that is woken
// to answer would wait behind them, for a second and more. Who waits for the
// network holds no turn. In a nil line nobody waits.
type line chan struct{}

func newLine() line { return make(line, runtime.GOMAXPROCS(0)) }

func (l line) enter() {
	if l != nil {
		l <- struct{}{}
	}
}

func (l line) leave() {
	if l != nil {
		<-l
	}
}
