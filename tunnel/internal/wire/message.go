// Package wire holds what the two ends of the tunnel say to each other: the
// messages, the tokens and the proofs of SPEC.md, sections 4 and 6, and the times
// of section 9. It decides nothing.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// Version is the version of the protocol.
const Version = 1

// Message is one message, on the control stream, at the beginning of another
// stream, or in an enrolment. New makes one.
type Message struct {
	Kind Kind
	Body []byte // the fields: tag, length, value
}

// Kind says what a message is for.
type Kind uint16

const (
	MsgHello    Kind = 1  // agent: first on the control stream
	MsgWelcome  Kind = 2  // server: the answer
	MsgRefusal  Kind = 3  // the answer to anything that is refused
	MsgDrain    Kind = 4  // either side: open no more streams here
	MsgRenew    Kind = 5  // agent: sign this
	MsgIssued   Kind = 6  // server: the certificate, for MsgRenew and MsgEnroll
	MsgRoots    Kind = 7  // server: the authorities to trust from now on
	MsgPayload  Kind = 8  // server: a named piece of data for the agent
	MsgReceived Kind = 9  // agent: the result of a payload
	MsgServers  Kind = 10 // server: the names of the servers that run
	MsgMove     Kind = 11 // server: another server has fewer agents
	MsgDial     Kind = 16 // server: dial this target
	MsgDialed   Kind = 17 // agent: the result
	MsgEnroll   Kind = 32 // agent: a token and a key

	// Between servers.
	MsgAsk     Kind = 64 // do you have an agent of the cluster?
	MsgHave    Kind = 65 // the answer
	MsgForward Kind = 66 // MsgDial for the sessions of the other server
	MsgFleet   Kind = 67 // what do you know? And a piece of the answer
	MsgRevoked Kind = 68 // end the sessions of this agent
	MsgArrived Kind = 69 // an agent of the cluster that you have asked for is here
	MsgPush    Kind = 70 // MsgPayload, which follows, for the agents of the other server
	MsgLoad    Kind = 71 // how many sessions with agents there are here
)

// Tag names a field of a message.
type Tag uint16

const (
	TagCode        Tag = 1  // uint: a code; absent or 0 is success
	TagText        Tag = 2  // string: for people
	TagVersion     Tag = 3  // uint, repeated in MsgHello: versions of the protocol
	TagID          Tag = 4  // string: which session, payload or answer
	TagAddress     Tag = 5  // string: host:port
	TagNetwork     Tag = 6  // string: "tcp"
	TagCluster     Tag = 7  // string
	TagToken       Tag = 8  // string
	TagRequest     Tag = 9  // bytes: certificate signing request, DER
	TagCertificate Tag = 10 // bytes, repeated: DER, leaf first
	TagRoot        Tag = 11 // bytes, repeated: DER
	TagName        Tag = 12 // string
	TagData        Tag = 13 // bytes
	TagTime        Tag = 14 // uint: milliseconds since 1970, UTC
	TagProof       Tag = 15 // bytes: signature that Prove makes
	TagLimit       Tag = 16 // uint: streams that may be open at once; in MsgLoad, sessions
	TagProgram     Tag = 17 // string: name and version of the program
	TagServer      Tag = 18 // string, repeated: names of servers, the sender's first
	TagHeld        Tag = 19 // string, repeated: names of servers that the agent has a session with
	TagShare       Tag = 20 // uint: streams with the same number share their turns
	TagEarly       Tag = 21 // uint: bytes of data that follow the message
	TagAgain       Tag = 22 // uint: 1: the agent tries again if it is to go to another zone
)

// Limits of a message's body, in bytes.
const (
	MaxBody    = 1 << 20  // any message
	MaxControl = 16 << 10 // of the control stream, except from a server to an agent
	MaxID      = 64       // TagID of an agent's message, which the answer repeats
	MaxHello   = 4 << 10  // MsgHello, which may be a stranger's
	MaxRequest = 4 << 10  // the first message of a stream, and its answer
	MaxEarly   = 32 << 10 // data that travels with a dial
)

const (
	headerSize      = 6       // kind, length of the body
	fieldHeaderSize = 6       // tag, length of the value
	firstAllocation = 4 << 10 // for a body, before any of it has arrived
)

// ErrMalformed is the error of a message that breaks the format.
var ErrMalformed = errors.New("malformed message")

// New returns a message without fields.
func New(kind Kind) *Message { return &Message{Kind: kind} }

// AddBytes adds a field. It returns m, as the other Add methods do.
func (m *Message) AddBytes(t Tag, v []byte) *Message { return addField(m, t, v) }

// AddString adds a field.
func (m *Message) AddString(t Tag, v string) *Message { return addField(m, t, v) }

// AddStrings adds a field for each value.
func (m *Message) AddStrings(t Tag, values []string) *Message {
	for _, v := range values {
		addField(m, t, v)
	}
	return m
}

// AddUint adds a field.
func (m *Message) AddUint(t Tag, v uint64) *Message {
	return addField(m, t, binary.BigEndian.AppendUint64(nil, v))
}

// AddTime adds a field.
func (m *Message) AddTime(t Tag, v time.Time) *Message {
	return m.AddUint(t, uint64(v.UnixMilli()))
}

func addField[V string | []byte](m *Message, t Tag, v V) *Message {
	m.Body = binary.BigEndian.AppendUint16(m.Body, uint16(t))
	m.Body = binary.BigEndian.AppendUint32(m.Body, uint32(len(v)))
	m.Body = append(m.Body, v...)
	return m
}

// cutField returns the first field of a body, and what follows it. ok is false
// if the body does not begin with a whole field.
func cutField(body []byte) (t Tag, v, rest []byte, ok bool) {
	if len(body) < fieldHeaderSize {
		return 0, nil, nil, false
	}
	t, n := Tag(binary.BigEndian.Uint16(body)), binary.BigEndian.Uint32(body[2:])
	body = body[fieldHeaderSize:]
	if uint64(n) > uint64(len(body)) {
		return 0, nil, nil, false
	}
	return t, body[:n:n], body[n:], true
}

// All returns the fields with the tag, in their order. The bytes are the message's
// own.
func (m *Message) All(t Tag) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for body := m.Body; ; {
			found, v, rest, ok := cutField(body)
			if !ok || found == t && !yield(v) {
				return
			}
			body = rest
		}
	}
}

// Bytes returns the first field with the tag; nil without one. The bytes
// are the message's own.
func (m *Message) Bytes(t Tag) []byte {
	for v := range m.All(t) {
		return v
	}
	return nil
}

// Text returns the first field with the tag; empty without one.
func (m *Message) Text(t Tag) string { return string(m.Bytes(t)) }

// Uint returns the first field with the tag; 0 without one, or if it is not
// a number.
func (m *Message) Uint(t Tag) uint64 {
	if b := m.Bytes(t); len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Texts returns all fields with the tag.
func (m *Message) Texts(t Tag) (all []string) {
	for b := range m.All(t) {
		all = append(all, string(b))
	}
	return all
}

// Speaks reports whether a MsgHello or MsgEnroll names our version of the
// protocol.
func (m *Message) Speaks() (ok bool) {
	for b := range m.All(TagVersion) {
		ok = ok || len(b) == 8 && binary.BigEndian.Uint64(b) == Version
	}
	return ok
}

// checkFields returns an error unless the fields fill the body.
func (m *Message) checkFields() error {
	for body := m.Body; len(body) > 0; {
		var ok bool
		if _, _, body, ok = cutField(body); !ok {
			return ErrMalformed
		}
	}
	return nil
}

// Encode returns the message as it is sent.
func (m *Message) Encode() []byte {
	b := make([]byte, 0, headerSize+len(m.Body))
	b = binary.BigEndian.AppendUint16(b, uint16(m.Kind))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Body)))
	return append(b, m.Body...)
}

// Write writes the message by one call of w.Write.
func Write(w io.Writer, m *Message) error {
	if len(m.Body) > MaxBody {
		return fmt.Errorf("a message of %d bytes, and %d is the most", len(m.Body), MaxBody)
	}
	_, err := w.Write(m.Encode())
	return err
}

// Read reads one message whose body has at most limit bytes, and nothing that
// follows it. If r ends before the first byte, the error is io.EOF; if r ends
// later, io.ErrUnexpectedEOF.
func Read(r io.Reader, limit int) (*Message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[2:])
	if uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("%w: a body of %d bytes, and %d is the most", ErrMalformed, n, limit)
	}
	body, err := readBody(r, int(n))
	if err != nil {
		return nil, err
	}
	m := &Message{Kind: Kind(binary.BigEndian.Uint16(header[:])), Body: body}
	return m, m.checkFields()
}

// readBody reads n bytes. The header may claim any n, so the buffer grows only
// as bytes arrive: it doubles whenever it is full. A stream's Keep counts it until it is whole.
func readBody(r io.Reader, n int) ([]byte, error) {
	body := make([]byte, min(n, firstAllocation))
	for have := 0; ; {
		m, err := io.ReadFull(r, body[have:])
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if have += m; have == n || err != nil {
			return body, err
		}
		if k, ok := r.(interface{ Keep(int) }); ok {
			k.Keep(min(n, 2*have))
			defer k.Keep(0)
		}
		larger := make([]byte, min(n, 2*have))
		copy(larger, body)
		body = larger
	}
}
