package admission

import "io"

// Records reads TLS records from a connection. crypto/tls offers more room than
// it needs, and doubles its buffer whenever the beginning of the next record is
// in it: it gets no more than it needs. The zero Records begins with a record.
type Records struct {
	header [5]byte // type, version, length
	have   int     // bytes of the header
	left   int     // bytes after the header
}

// Read reads from conn once, and no further than the end of a header or of a
// record: as far as the place allows, or anything if p is nil. nested says that
// this is below another TLS, which counts what comes.
func (r *Records) Read(conn io.Reader, b []byte, p *Place, nested bool) (int, error) {
	b = r.limit(b)
	if p == nil {
		n, err := conn.Read(b)
		r.advance(b[:n])
		return n, err
	}
	inHeader := !r.inBody()
	p.Wait()
	n, err := conn.Read(b)
	r.advance(b[:n])
	if err != nil {
		return n, err
	}
	switch {
	case inHeader && n > 0 && (r.inBody() || r.between()) && r.isTLS():
		err = p.announced(len(r.header)+r.left, nested)
	case !inHeader && !nested && p.stage == Silent && p.inHandshake:
		err = p.heard(b[:n], r.between())
	}
	if err == nil && r.between() {
		err = p.Compute()
	}
	return n, err
}

// limit cuts p where the header or the record ends.
func (r *Records) limit(p []byte) []byte {
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

// inBody reports whether the header of a record has come, and not all of its body.
func (r *Records) inBody() bool { return r.have == len(r.header) }

// isTLS reports whether the type is one of TLS: what is anything else, HTTP say,
// has no length here, and is refused at once.
func (r *Records) isTLS() bool { return r.header[0] >= 20 && r.header[0] <= 24 }

// between reports whether no part of a record has come that is not whole.
func (r *Records) between() bool { return r.have == 0 }
