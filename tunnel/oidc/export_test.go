package oidc

import "time"

// SetClock has the Issuers take the time from now.
func (s *Issuers) SetClock(now func() time.Time) { s.now = now }

const (
	KeysFresh  = keysFresh
	KeysKept   = keysKept
	FirstPause = firstPause
	MaxUsed    = maxUsed
)
