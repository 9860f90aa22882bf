package relay

import "time"

var CopyConn = copyConn

// SetGoneEvery is for relays that are started before the function is called that it returns.
func SetGoneEvery(d time.Duration) func() {
	before := goneEvery
	goneEvery = d
	return func() { goneEvery = before }
}
