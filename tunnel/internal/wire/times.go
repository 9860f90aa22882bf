package wire

import "time"

// The times of a dial, by which both ends and all replicas go. SPEC.md, section 9,
// says more about each. A session is suspect after a probe that was not answered,
// until a byte comes.
const (
	//                               when this time has passed ...                        ... then
	SuspectAfter   = 2 * time.Second  // since a message was sent, and no answer came       the session is probed
	ProbeTimeout   = 3 * time.Second  // since the probe was sent                           the session is suspect, and the dial goes elsewhere
	ProbeInterval  = 1 * time.Second  // since the last byte came                           the session is probed again
	AskTimeout     = 2 * time.Second  // since ASK, and there is something else to try       that is tried, without the missing answers
	AskPatience    = 15 * time.Second // since ASK, and there is not                        no agent is connected
	ConnectTimeout = 5 * time.Second  // and a replica was not connected yet, ever          it has no agent
	StartupTimeout = 10 * time.Second // since the start, and no list of replicas came      there are no others
	FoundFor       = 10 * time.Second // since a replica had an agent of the cluster        it is not asked first any more
	NoneFor        = 10 * time.Second // since no replica had one                           they are asked again
	DialTimeout    = 30 * time.Second // since the dial, whose context has no deadline      it fails
)

// MaxOpened is how many streams a session opens before another one replaces it:
// the ids of streams are finite.
const MaxOpened = 1 << 30
