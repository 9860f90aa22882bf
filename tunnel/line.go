package tunnel

import "runtime"

// line is where goroutines wait for their turn: as many have it as the channel
// has room for. In a nil line nobody waits. One of one is a lock that may be held
// while the network blocks: it is seen that who waits for it does nothing, by
// the clock of a test, too.
type line chan struct{}

// newLine is where handshakes wait for their turn to compute. As many as there
// are processors do at once: if all of a thousand did, each session that is woken
// to answer would wait behind them, for a second and more. Who waits for the
// network holds no turn.
func newLine() line { return make(line, runtime.GOMAXPROCS(0)) }

func (l line) enter() {
	if l != nil {
		l <- struct{}{}
	}
}

// tryEnter reports whether it was somebody's turn at once.
func (l line) tryEnter() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l line) leave() {
	if l != nil {
		<-l
	}
}
