package mux

import "context"

// Settle waits until no more than n streams are open, and from then on Open
// opens none: who ends the session now cuts nobody off. What the others had to
// say, their ends included, reaches the peer before anything that is written
// after that. The errors are the session's and ctx's.
func (s *Session) Settle(ctx context.Context, n int) error {
	stop := s.broadcastAfter(ctx, &s.ends)
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.err != nil:
			return s.err
		case len(s.streams) <= n:
			s.settled = true
			s.opens.Broadcast()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		s.ends.Wait()
	}
}
