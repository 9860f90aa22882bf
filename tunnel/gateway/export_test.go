package gateway

import "io"

// Head is what the CONNECT door makes of a header.
type Head struct{ Authority, User, Password, Bearer string }

// ReadHead reads as the CONNECT door does; rest is what follows the header.
func ReadHead(r io.Reader, most int) (h *Head, rest []byte, err error) {
	all, end, err := readHeader(r, make([]byte, 0, headerBufferSize), most)
	if err != nil {
		return nil, nil, err
	}
	parsed, err := parseRequest(all[:end])
	if err != nil {
		return nil, nil, err
	}
	return &Head{parsed.authority, parsed.user, parsed.password, parsed.bearer}, all[end:], nil
}

// Answer is what HTTP/1 is answered because of err.
func Answer(err error) []byte { return answerFor(err).appendTo(nil) }
