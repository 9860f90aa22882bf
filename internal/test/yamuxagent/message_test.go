package yamuxagent_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kinds of messages, and tags of their fields (section 4).
const (
	kindHello, kindWelcome, kindDrain, kindIssued = 1, 2, 4, 6
	kindDial, kindDialed, kindEnroll              = 16, 17, 32

	tagCode, tagText, tagVersion, tagAddress, tagToken     = 1, 2, 3, 5, 8
	tagRequest, tagCertificate, tagRoot, tagTime, tagProof = 9, 10, 11, 14, 15
	tagProgram                                             = 17
)

type message struct {
	kind   uint16
	fields map[uint16][]string // some tags are repeated
}

func (m *message) textField(tag uint16) string { return append(m.fields[tag], "")[0] }

func (m *message) numberField(tag uint16) uint64 {
	if value := m.textField(tag); len(value) == 8 {
		return binary.BigEndian.Uint64([]byte(value))
	}
	return 0
}

// readMessage reads a message and not a byte more.
func readMessage(r io.Reader) (*message, error) {
	kind, body, err := readPart(r)
	m := &message{kind, map[uint16][]string{}}
	for rest := bytes.NewReader(body); err == nil && rest.Len() > 0; {
		var tag uint16
		var value []byte
		tag, value, err = readPart(rest)
		m.fields[tag] = append(m.fields[tag], string(value))
	}
	return m, err
}

// readPart reads the kind and the body of a message, or the tag and the value of
// a field: they have the same form.
func readPart(r io.Reader) (uint16, []byte, error) {
	var header [6]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(header[2:])
	if size > 1<<20 {
		return 0, nil, errors.New("a message that is too long")
	}
	part := make([]byte, size)
	_, err := io.ReadFull(r, part)
	return binary.BigEndian.Uint16(header[:]), part, err
}

// encodeMessage makes a message of fields, or a field of a value.
func encodeMessage(kindOrTag uint16, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	b := binary.BigEndian.AppendUint16(nil, kindOrTag)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...)
}

func newTextField(tag uint16, value string) []byte { return encodeMessage(tag, []byte(value)) }

func newNumberField(tag uint16, n uint64) []byte {
	return encodeMessage(tag, binary.BigEndian.AppendUint64(nil, n))
}

// askServer sends a message and reads the answer, which is to be of the kind.
func askServer(rw io.ReadWriter, question []byte, kind uint16) (*message, error) {
	if _, err := rw.Write(question); err != nil {
		return nil, err
	}
	m, err := readMessage(rw)
	if err == nil && (m.kind != kind || m.numberField(tagCode) != 0) {
		err = fmt.Errorf("the server refuses: code %d, %q", m.numberField(tagCode), m.textField(tagText))
	}
	return m, err
}
