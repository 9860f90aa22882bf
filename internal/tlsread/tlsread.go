// Package tlsread reads what the presentation language of TLS describes (RFC 8446,
// section 3), of messages that crypto/tls is not to read yet.
package tlsread

// Cursor is what is left of a message.
type Cursor []byte

// Take takes n bytes; false if there are fewer.
func (c *Cursor) Take(n int) (Cursor, bool) {
	if n > len(*c) {
		return nil, false
	}
	taken := (*c)[:n]
	*c = (*c)[n:]
	return taken, true
}

// Number takes a number of size bytes.
func (c *Cursor) Number(size int) (n int, ok bool) {
	b, ok := c.Take(size)
	for _, x := range b {
		n = n<<8 | int(x)
	}
	return n, ok
}

// Vector takes a vector with a length of size bytes before it.
func (c *Cursor) Vector(size int) (Cursor, bool) {
	n, ok := c.Number(size)
	if !ok {
		return nil, false
	}
	return c.Take(n)
}

// Extensions takes the body of a ClientHello up to its extensions, which it returns.
// There need not be any.
func Extensions(body Cursor) (extensions Cursor, ok bool) {
	_, ok = body.Take(2 + 32) // version, random
	for _, size := range []int{1, 2, 1} {
		if ok {
			_, ok = body.Vector(size) // session, cipher suites, compression
		}
	}
	if ok && len(body) == 0 {
		return nil, true
	}
	extensions, whole := body.Vector(2)
	return extensions, ok && whole && len(body) == 0
}
