package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// A message is what the two sides say to each other: on the control stream,
// at the beginning of a stream, and in an enrolment. SPEC.md has its form.
type message struct {
	kind messageKind
	body []byte // fields: tag, length, value
}

type messageKind uint16

const (
	msgHello    messageKind = 1  // agent to server, first on the control stream
	msgWelcome  messageKind = 2  // server's answer
	msgRefusal  messageKind = 3  // the answer to anything that is refused
	msgDrain    messageKind = 4  // either side: open no more streams here
	msgRenew    messageKind = 5  // agent: sign this
	msgIssued   messageKind = 6  // server: the certificate, for msgRenew and msgEnroll
	msgRoots    messageKind = 7  // server: the authorities to trust from now on
	msgPayload  messageKind = 8  // server: a named piece of data for the agent
	msgReceived messageKind = 9  // agent: what became of a payload
	msgServers  messageKind = 10 // server: the names of the servers that run
	msgDial     messageKind = 16
	msgDialed   messageKind = 17
	msgEnroll   messageKind = 32

	// Between servers.
	msgAsk     messageKind = 64 // has it an agent of the cluster?
	msgHave    messageKind = 65 // the answer
	msgForward messageKind = 66 // msgDial for the sessions of the other server
	msgFleet   messageKind = 67 // what it knows; and a piece of the answer
	msgRevoked messageKind = 68 // end the sessions of this agent
)

type tag uint16

const (
	tagCode        tag = 1  // uint: Code; absent or 0 is success
	tagText        tag = 2  // string: for people
	tagVersion     tag = 3  // uint, repeated in msgHello: versions of the protocol
	tagID          tag = 4  // string: which session, payload or answer
	tagAddress     tag = 5  // string: host:port
	tagNetwork     tag = 6  // string: "tcp"
	tagCluster     tag = 7  // string
	tagToken       tag = 8  // string
	tagRequest     tag = 9  // bytes: certificate signing request, DER
	tagCertificate tag = 10 // bytes, repeated: DER, leaf first
	tagRoot        tag = 11 // bytes, repeated: DER
	tagName        tag = 12 // string
	tagData        tag = 13 // bytes
	tagTime        tag = 14 // uint: milliseconds since 1970, UTC
	tagProof       tag = 15 // bytes: signature over the connection's exporter
	tagLimit       tag = 16 // uint: streams that may be open at once
	tagProgram     tag = 17 // string: name and version of the program
	tagServer      tag = 18 // string, repeated: names of servers, the sender's first
	tagHeld        tag = 19 // string, repeated: names of servers that the agent has a session with
)

const (
	messageHeader = 6       // kind, length of the body
	fieldHeader   = 6       // tag, length of the value
	maxMessage    = 1 << 20 // of a body, in bytes
	maxRequest    = 4 << 10 // of the body of a msgDial or msgDialed
	firstPart     = 4 << 10 // of a body, allocated before any of it has come
)

var errMessage = errors.New("malformed message")

func (m *message) bytes(t tag, v []byte) *message {
	m.body = binary.BigEndian.AppendUint16(m.body, uint16(t))
	m.body = binary.BigEndian.AppendUint32(m.body, uint32(len(v)))
	m.body = append(m.body, v...)
	return m
}

func (m *message) string(t tag, v string) *message {
	m.body = binary.BigEndian.AppendUint16(m.body, uint16(t))
	m.body = binary.BigEndian.AppendUint32(m.body, uint32(len(v)))
	m.body = append(m.body, v...)
	return m
}

func (m *message) uint(t tag, v uint64) *message {
	m.body = binary.BigEndian.AppendUint16(m.body, uint16(t))
	m.body = binary.BigEndian.AppendUint32(m.body, 8)
	m.body = binary.BigEndian.AppendUint64(m.body, v)
	return m
}

func (m *message) time(t tag, v time.Time) *message {
	return m.uint(t, uint64(v.UnixMilli()))
}

// each calls f for every field with the tag, in their order.
func (m *message) each(t tag, f func([]byte)) {
	for b := m.body; len(b) >= fieldHeader; {
		n := binary.BigEndian.Uint32(b[2:])
		if uint64(n) > uint64(len(b)-fieldHeader) {
			return // check keeps this from happening
		}
		if tag(binary.BigEndian.Uint16(b)) == t {
			f(b[fieldHeader : fieldHeader+n : fieldHeader+n])
		}
		b = b[fieldHeader+n:]
	}
}

// get returns the first field with the tag; nil if there is none. The bytes
// are the message's own.
func (m *message) get(t tag) (v []byte) {
	m.each(t, func(b []byte) {
		if v == nil {
			v = b
		}
	})
	return v
}

func (m *message) getString(t tag) string { return string(m.get(t)) }

// getUint returns 0 if the field is absent or not a number.
func (m *message) getUint(t tag) uint64 {
	if b := m.get(t); len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (m *message) getStrings(t tag) (all []string) {
	m.each(t, func(b []byte) { all = append(all, string(b)) })
	return all
}

func (m *message) getAll(t tag) (all [][]byte) {
	m.each(t, func(b []byte) { all = append(all, b) })
	return all
}

// check returns whether the fields fill the body.
func (m *message) check() error {
	for b := m.body; len(b) > 0; {
		if len(b) < fieldHeader {
			return errMessage
		}
		n := binary.BigEndian.Uint32(b[2:])
		if uint64(n) > uint64(len(b)-fieldHeader) {
			return errMessage
		}
		b = b[fieldHeader+n:]
	}
	return nil
}

// encode appends the message to b.
func (m *message) encode(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(m.kind))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.body)))
	return append(b, m.body...)
}

// writeMessage writes the message by one Write.
func writeMessage(w io.Writer, m *message) error {
	if len(m.body) > maxMessage {
		return fmt.Errorf("a message of %d bytes, and %d is the most", len(m.body), maxMessage)
	}
	_, err := w.Write(m.encode(make([]byte, 0, messageHeader+len(m.body))))
	return err
}

// readMessage reads one message, and not a byte more. The end of r before its
// first byte is io.EOF, in the middle io.ErrUnexpectedEOF.
func readMessage(r io.Reader, limit int) (*message, error) {
	var header [messageHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[2:])
	if uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("%w: a body of %d bytes, and %d is the most", errMessage, n, limit)
	}
	body, err := readBody(r, int(n))
	if err != nil {
		return nil, err
	}
	m := &message{kind: messageKind(binary.BigEndian.Uint16(header[:])), body: body}
	return m, m.check()
}

// readBody reads n bytes. Memory follows what has come, and not what the header
// claims: it doubles when it is full.
func readBody(r io.Reader, n int) ([]byte, error) {
	body := make([]byte, min(n, firstPart))
	for have := 0; ; {
		m, err := io.ReadFull(r, body[have:])
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if have += m; have == n || err != nil {
			return body, err
		}
		larger := make([]byte, min(n, 2*have))
		copy(larger, body)
		body = larger
	}
}

// refusal is the message that says err to the other side: its code, and a
// text that holds nothing of this side's causes.
func refusal(kind messageKind, code Code, text string) *message {
	return (&message{kind: kind}).uint(tagCode, uint64(code)).string(tagText, text)
}

// code returns what the other side says has failed; zero is success.
func (m *message) code() Code { return wireCode(m.getUint(tagCode)) }

// wireCode keeps a peer from saying what only this side can find out.
func wireCode(n uint64) Code {
	if n >= uint64(CodeNoAgent) {
		return CodeInternal
	}
	return Code(n)
}

// failure returns what a message with a code says, nil for success.
func (m *message) failure(op, cluster, addr string) error {
	code := m.code()
	if code == 0 {
		return nil
	}
	e := &Error{Op: op, Cluster: cluster, Addr: addr, Code: code}
	if text := m.getString(tagText); text != "" && text != code.String() {
		e.Err = errors.New(printable(text))
	}
	return e
}

// printable keeps what a peer said from spoiling a log.
func printable(s string) string {
	const most = 300
	b := make([]rune, 0, min(len(s), most))
	for _, r := range s {
		if len(b) == most {
			break
		}
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			r = ' '
		}
		b = append(b, r)
	}
	return string(b)
}
