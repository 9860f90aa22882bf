package h2spec

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2spec asks for a page, by GET and POST. A rewriter stands between it and the
// door and makes a CONNECT of each request. All else passes as it is, what is
// malformed included.
type rewriter struct {
	client io.Reader
	door   io.Writer

	decoder *hpack.Decoder // of what h2spec sends
	fields  []hpack.HeaderField
	encoder *hpack.Encoder // of what the door gets
	encoded bytes.Buffer
}

const frameHeader = 9

// rewrite relays a connection of h2spec to the door at address until both have
// ended.
func rewrite(client net.Conn, address string) {
	door, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer door.Close()
	r := &rewriter{client: client, door: door}
	r.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { r.fields = append(r.fields, f) })
	r.encoder = hpack.NewEncoder(&r.encoded)
	var wg sync.WaitGroup
	wg.Go(func() {
		r.run()
		door.(*net.TCPConn).CloseWrite()
	})
	if _, err := io.Copy(client, door); err != nil {
		client.(*net.TCPConn).SetLinger(0) // a reset stays one
		client.Close()
	} else {
		client.(*net.TCPConn).CloseWrite()
	}
	wg.Wait()
}

func (r *rewriter) run() {
	hello := make([]byte, len(http2.ClientPreface))
	n, _ := io.ReadFull(r.client, hello)
	r.door.Write(hello[:n])
	if string(hello) != http2.ClientPreface {
		io.Copy(r.door, r.client)
		return
	}
	for {
		header := make([]byte, frameHeader)
		n, err := io.ReadFull(r.client, header)
		if err != nil {
			r.door.Write(header[:n])
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(header)>>8)
		n, err = io.ReadFull(r.client, payload)
		payload = payload[:n]
		if err == nil {
			payload = r.frame(http2.FrameType(header[3]), http2.Flags(header[4]), payload)
			header[0], header[1], header[2] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload))
		}
		if _, werr := r.door.Write(append(header, payload...)); werr != nil || err != nil {
			io.Copy(io.Discard, r.client)
			return
		}
	}
}

// frame returns the payload for the door.
func (r *rewriter) frame(kind http2.FrameType, flags http2.Flags, payload []byte) []byte {
	switch kind {
	case http2.FrameHeaders:
		from, to := 0, len(payload)
		if flags.Has(http2.FlagHeadersPadded) && len(payload) > 0 {
			from, to = 1, to-int(payload[0])
		}
		if flags.Has(http2.FlagHeadersPriority) {
			from += 5
		}
		if from > to {
			return payload
		}
		return slices.Concat(payload[:from], r.block(payload[from:to]), payload[to:])
	case http2.FrameContinuation:
		return r.block(payload)
	}
	return payload
}

// block returns a piece of a header's block for the door. h2spec cuts none of
// them within a field.
func (r *rewriter) block(b []byte) []byte {
	r.fields = nil
	_, err := r.decoder.Write(b)
	if cerr := r.decoder.Close(); err != nil || cerr != nil {
		return b
	}
	r.encoded.Reset()
	for _, f := range connect(r.fields) {
		r.encoder.WriteField(f)
	}
	return slices.Clone(r.encoded.Bytes())
}

// connect makes a CONNECT of a request that begins as h2spec's common one does,
// with whatever follows. Where one of these fields is missing or empty, it stays
// so: that is what a test is about.
func connect(fields []hpack.HeaderField) []hpack.HeaderField {
	for i, name := range []string{":method", ":scheme", ":path", ":authority"} {
		if i >= len(fields) || fields[i].Name != name || fields[i].Value == "" {
			return fields
		}
	}
	method := hpack.HeaderField{Name: ":method", Value: "CONNECT"}
	return slices.Concat([]hpack.HeaderField{method}, fields[3:])
}
