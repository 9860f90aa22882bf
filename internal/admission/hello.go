package admission

// maxShares is how many key shares a ClientHello may offer and be a short one. Of
// five bytes, as short as they come, Go makes up to sixty.
const maxShares = 16

const extensionKeyShare = 51 // RFC 8446, section 4.2.8

// isShort reports whether a ClientHello, the body of a record, is whole and offers
// few key shares.
func isShort(hello []byte) bool {
	all := vector(hello)
	all.skip(1) // the type
	message := all.next(3)
	if len(message) == 0 {
		return false
	}
	message.skip(2 + 32) // version, random
	message.next(1)      // session
	message.next(2)      // cipher suites
	message.next(1)      // compression
	shares := 0
	for extensions := message.next(2); len(extensions) > 0; {
		kind := extensions.skip(2)
		data := extensions.next(2)
		if len(kind) == 2 && kind[0] == 0 && kind[1] == extensionKeyShare {
			for list := data.next(2); len(list) > 0; shares++ {
				list.skip(2) // the group
				list.next(2)
			}
		}
	}
	return shares <= maxShares
}

// vector is one of TLS's presentation language (RFC 8446, section 3.4). Where it is
// cut, nothing is left of it.
type vector []byte

// skip takes n bytes.
func (v *vector) skip(n int) vector {
	if n > len(*v) {
		*v = nil
		return nil
	}
	taken := (*v)[:n]
	*v = (*v)[n:]
	return taken
}

// next takes a vector whose length is in the size bytes before it.
func (v *vector) next(size int) vector {
	n := 0
	for _, b := range v.skip(size) {
		n = n<<8 | int(b)
	}
	return v.skip(n)
}
