// Package enroltest plays an agent that enrols, by hand: TLS from the standard
// library, and the bytes of SPEC.md, section 6. It uses nothing of package tunnel.
package enroltest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// Tags of SPEC.md, section 4.
const (
	tagCode    = 1
	tagText    = 2
	tagVersion = 3
	tagToken   = 8
	tagRequest = 9
	tagProof   = 15
)

// Answer is what the server said.
type Answer struct {
	Code uint64 // zero: it sent a certificate
	Text string
}

// Enrol shows the token on a connection of its own, with a request of the key
// and a valid proof, and trusts any server. It closes the connection.
func Enrol(ctx context.Context, conn net.Conn, token string, key crypto.Signer) (Answer, error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{"causeway-enroll/1"}})
	if err := c.Handshake(); err != nil {
		return Answer{}, err
	}
	state := c.ConnectionState()
	request, proof, err := signProof(&state, key)
	if err != nil {
		return Answer{}, err
	}
	body := appendField(nil, tagVersion, binary.BigEndian.AppendUint64(nil, 1))
	body = appendField(body, tagToken, []byte(token))
	body = appendField(body, tagRequest, request)
	body = appendField(body, tagProof, proof)
	header := binary.BigEndian.AppendUint32([]byte{0, 32}, uint32(len(body))) // ENROLL
	if _, err := c.Write(append(header, body...)); err != nil {
		return Answer{}, err
	}
	return readAnswer(c)
}

func signProof(state *tls.ConnectionState, key crypto.Signer) (request, proof []byte, err error) {
	exporter, err := state.ExportKeyingMaterial("EXPORTER-causeway-proof", nil, 32)
	if err != nil {
		return nil, nil, err
	}
	if request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
		return nil, nil, err
	}
	digest := sha256.Sum256(append(append([]byte("causeway proof 1\x00"), exporter...), request...))
	proof, err = key.Sign(rand.Reader, digest[:], crypto.SHA256)
	return request, proof, err
}

func appendField(body []byte, tag uint16, value []byte) []byte {
	body = binary.BigEndian.AppendUint16(body, tag)
	body = binary.BigEndian.AppendUint32(body, uint32(len(value)))
	return append(body, value...)
}

func readAnswer(r io.Reader) (a Answer, err error) {
	var header [6]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return a, err
	}
	body := make([]byte, min(binary.BigEndian.Uint32(header[2:]), 1<<20))
	if _, err := io.ReadFull(r, body); err != nil {
		return a, err
	}
	if header[1] != 6 { // ISSUED
		return a, errors.New("the answer is something else")
	}
	for len(body) >= 6 {
		tag, n := binary.BigEndian.Uint16(body), binary.BigEndian.Uint32(body[2:])
		if int64(n) > int64(len(body)-6) {
			return a, errors.New("the answer's fields go too far")
		}
		switch value := body[6 : 6+n]; tag {
		case tagCode:
			a.Code = binary.BigEndian.Uint64(value)
		case tagText:
			a.Text = string(value)
		}
		body = body[6+n:]
	}
	return a, nil
}
