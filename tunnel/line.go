package tunnel

// line is a lock, a channel with room for one, that may be held while the network
// blocks: it is seen that who waits for it does nothing, by the clock of a test,
// too.
type line chan struct{}

func (l line) enter() { l <- struct{}{} }

// tryEnter reports whether it was somebody's turn at once.
func (l line) tryEnter() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l line) leave() { <-l }
