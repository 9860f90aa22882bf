package admission

import (
	"io"
	"net"
)

// Records reads TLS records from a connection, at most one by each Read. crypto/tls
// asks for more than a record, and doubles its buffer when it gets the beginning of
// the next one: a stranger that sends fast would make it grow. The zero Records is at
// the beginning of a record.
type Records struct {
	header [5]byte // type, version, length
	have   int     // bytes of the header
	left   int     // bytes after the header
}

// Read reads from conn once, at most the rest of a record's header or body. A
// place, if p is not nil, is told of the size of each record when its header has
// come, and may refuse it. nested says that the connection is inside another TLS
// connection, which counts the bytes.
func (r *Records) Read(conn io.Reader, b []byte, p *Place, nested bool) (int, error) {
	b = r.limitRead(b)
	inHeader := !r.inBody()
	if p != nil {
		p.Wait()
	}
	n, err := conn.Read(b)
	r.advance(b[:n])
	if p == nil || err != nil {
		return n, err
	}
	switch {
	case inHeader && n > 0 && (r.inBody() || r.betweenRecords()) && r.isTLS():
		err = p.checkRecord(len(r.header)+r.left, nested)
	case !inHeader && !nested && p.stage == Silent && p.inHandshake:
		err = p.checkHello(b[:n], r.betweenRecords())
	}
	if err == nil && r.betweenRecords() {
		err = p.Compute()
	}
	return n, err
}

// limitRead cuts p where the header or the record ends.
func (r *Records) limitRead(p []byte) []byte {
	if r.have < len(r.header) {
		return p[:min(len(p), len(r.header)-r.have)]
	}
	return p[:min(len(p), r.left)]
}

// advance takes what was read into what limit returned.
func (r *Records) advance(p []byte) {
	if r.have < len(r.header) {
		r.have += copy(r.header[r.have:], p)
		r.left = int(r.header[3])<<8 | int(r.header[4])
	} else {
		r.left -= len(p)
	}
	if r.have == len(r.header) && r.left == 0 {
		r.have = 0
	}
}

// inBody reports whether the header of a record has come, and not its whole body.
func (r *Records) inBody() bool { return r.have == len(r.header) }

// isTLS reports whether the record's type is one of TLS. Another protocol, such as
// HTTP, has no length at this place, and crypto/tls refuses it.
func (r *Records) isTLS() bool { return r.header[0] >= 20 && r.header[0] <= 24 }

// betweenRecords reports whether all records that have begun are complete.
func (r *Records) betweenRecords() bool { return r.have == 0 }

// Conn is a connection below TLS. While Place is not nil, it reads one record at a time, as
// far as the place allows.
type Conn struct {
	net.Conn
	Place   *Place
	records Records
}

func (c *Conn) Read(b []byte) (int, error) {
	if c.Place == nil {
		return c.Conn.Read(b)
	}
	return c.records.Read(c.Conn, b, c.Place, false)
}

func (c *Conn) Write(b []byte) (int, error) {
	if c.Place != nil {
		c.Place.Wait()
		c.Place.Reach(Greeting) // what is sent is an answer
	}
	return c.Conn.Write(b)
}
