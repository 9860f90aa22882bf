// Package mux carries many streams over one connection, the carrier. It speaks
// version 0 of yamux (https://github.com/hashicorp/yamux/blob/master/spec.md),
// and any yamux peer understands it. It differs in how it behaves:
//
//   - [Session.Open] waits for no round trip, and the first bytes travel with the
//     opening.
//   - A stalled reader stalls only its own stream. Bulk data delays an
//     interactive stream by at most one frame of each other stream.
//   - When the carrier ends, the streams return a [LostError]. An aborted stream
//     returns a [ResetError]. io.EOF always means that the peer ended its data.
//   - Deadlines, contexts and Close work whatever the carrier does.
//   - The windows of the streams bound the memory, whatever the peer sends, and a
//     [budget.Budget] that of many streams and sessions. An idle stream or session holds
//     no buffer.
//   - Windows grow with what readers take, so a long line is filled. All windows
//     of a session share the bytes that they may grow by.
//
// # Conventions beyond the specification
//
// Three conventions use what the specification leaves open:
//
//   - A frame that resets a stream carries a code in its length, which yamux
//     ignores there.
//   - A frame with both FIN and RST ends both directions in order: the peer reads
//     all that was sent, then io.EOF, and can't write any more. hashicorp/yamux
//     takes it for a reset and drops what it has not read.
//   - A window update with flag 16 is about the unused part of a window: see
//     window.go. Other implementations ignore it.
//
// # How a session works
//
// One goroutine, readLoop, reads frames and puts the payload into the buffers of
// its stream, or writes it to a socket directly. At most one goroutine at a time
// writes to the carrier: writeLoop, or the caller of ReadFrom if nobody else has
// anything to send. It gathers frames in this order: pings, control frames
// (resets and window updates), then data, one frame of each stream in turn.
//
// # Lock order
//
// Session.mu guards the session and all its streams. It is never held while the
// carrier, a caller's Reader or Writer, or a callback runs. readMu and writeMu of a
// stream admit one Read and one Write at a time. They are taken before Session.mu,
// never after it. A function whose name ends in Locked is called with Session.mu
// held; waitReceivedLocked, reserveRoomLocked, writeDirectLocked, sendBatchLocked
// and queueRefusalLocked release it for a time. A Budget's lock is taken before Session.mu.
package mux
