// Package mux carries many streams over one connection, the carrier. It speaks
// version 0 of yamux, and any yamux peer understands it; what this package
// adds is in how it behaves:
//
//   - [Session.Open] waits for no round trip, and its first bytes travel with it.
//   - A stalled reader stalls its own stream alone, and bulk holds an
//     interactive stream up for at most a frame of each stream.
//   - The end of the carrier is a [LostError], an aborted stream is a
//     [ResetError], and io.EOF is only ever what the peer sent as the end.
//   - Deadlines, contexts and Close work whatever the carrier does.
//   - Memory is bounded by the windows of the streams whatever the peer sends,
//     and an idle stream or session holds no buffer of its size.
//   - A long line is filled: windows grow with what readers take. All windows of
//     a session share what they may grow by.
//
// Three conventions stay within what yamux leaves open. A frame that resets a
// stream carries a code in its length, which yamux ignores there. A frame that
// has both FIN and RST ends both directions in order: the peer reads all that
// was sent, then io.EOF, and can't write any more. hashicorp/yamux takes that
// for a reset, and drops what it has not read. A frame that has the flag 16 is
// about the part of a window that is not used: see window.go.
package mux
