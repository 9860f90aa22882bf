package noproxy

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// parseAton reads an IPv4 address as inet_aton of C does: one to four numbers,
// in decimal, octal (010) or hexadecimal (0x8), of which the last takes the
// bytes that are left.
func parseAton(s string) (addr [4]byte, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return addr, false
	}
	var value uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(atonDigits(part))
		size := 8
		if i == len(parts)-1 {
			size = 8 * (4 - i)
		}
		if err != nil || n>>size != 0 {
			return addr, false
		}
		value = value<<size | n
	}
	binary.BigEndian.PutUint32(addr[:], uint32(value))
	return addr, true
}

// atonDigits returns the arguments of ParseUint for a number of C.
func atonDigits(s string) (digits string, base, bits int) {
	switch {
	case len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		return s[2:], 16, 32
	case len(s) > 1 && s[0] == '0':
		return s[1:], 8, 32
	}
	return s, 10, 32
}
