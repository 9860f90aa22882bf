package admission

import "github.com/causewayproject/causeway/internal/tlsread"

// maxShares is how many key shares a ClientHello may offer and be a short one. Of
// five bytes, as short as they come, Go makes up to sixty.
const maxShares = 16

const extensionKeyShare = 51 // RFC 8446, section 4.2.8

// isShort reports whether a ClientHello, the body of a record, is whole and offers
// few key shares.
func isShort(hello tlsread.Cursor) bool {
	hello.Take(1) // the type
	body, ok := hello.Vector(3)
	if !ok {
		return false
	}
	extensions, ok := tlsread.Extensions(body)
	if !ok {
		return false
	}
	shares := 0
	for len(extensions) > 0 {
		kind, _ := extensions.Number(2)
		data, ok := extensions.Vector(2)
		if !ok {
			return false
		}
		if kind != extensionKeyShare {
			continue
		}
		list, ok := data.Vector(2)
		for ok && len(list) > 0 {
			list.Take(2) // the group
			_, ok = list.Vector(2)
			shares++
		}
		if !ok {
			return false
		}
	}
	return shares <= maxShares
}
