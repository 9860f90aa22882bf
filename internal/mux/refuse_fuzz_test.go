package mux_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"github.com/causewayproject/causeway/internal/mux"
)

// refusedClient is a carrier that delivers a client's bytes, and keeps what the
// client is told.
type refusedClient struct {
	scripted
	largest int // that was asked for at once
	told    []byte
}

func (c *refusedClient) Read(p []byte) (int, error) {
	c.largest = max(c.largest, len(p))
	return c.scripted.Read(p)
}

func (c *refusedClient) Write(p []byte) (int, error) {
	c.told = append(c.told, p...)
	return len(p), nil
}

// firstStream returns the number of the stream that a client opens, as SPEC.md
// has it, and what comes after its header; zero if the client opens none.
func firstStream(b []byte) (id uint32, rest []byte) {
	for ; len(b) >= 12; b = b[12:] {
		flags, id := binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:])
		switch {
		case b[0] == 0 && b[1] == ping:
		case b[0] == 0 && b[1] < ping && flags&syn != 0 && id%2 == 1:
			return id, b[12:]
		default:
			return 0, nil
		}
	}
	return 0, nil
}

// FuzzRefuse: whatever a client sends that gets no session, only its first
// stream is answered, nothing is read ahead, and little is allocated.
func FuzzRefuse(f *testing.F) {
	f.Add(dataFrame(syn, 1, "hello"))
	f.Add(append(header(window, syn, 3, 1<<20), dataFrame(syn, 5, "more")...))
	f.Add(append(header(ping, syn, 0, 7), header(data, syn|fin|rst, 1<<32-1, 1<<32-1)...))
	f.Add(slices.Concat(bytes.Repeat(header(ping, syn, 0, 1), 1000), header(window, syn, 1, 0)))
	f.Add(header(window, syn, 2, 0))
	f.Add(header(data, ack, 1, 0))
	f.Add(header(goAway, syn, 1, 0))
	f.Add(header(ping, syn, 0, 7)[:11])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	answer := []byte("no")
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &refusedClient{scripted: scripted{bytes: b}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := mux.Refuse(c, answer)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%d bytes took %d", len(b), n)
		}
		if c.largest > 12 {
			t.Errorf("it asked for %d bytes at once, want a header", c.largest)
		}
		id, rest := firstStream(b)
		if id == 0 {
			if err == nil || len(c.told) > 0 {
				t.Errorf("got %v and the answer %x, want an error and no answer", err, c.told)
			}
			return
		}
		want := slices.Concat(header(data, ack, id, uint32(len(answer))), answer, header(window, fin, id, 0))
		if err != nil || !bytes.Equal(c.told, want) {
			t.Errorf("got %v and the answer %x, want %x", err, c.told, want)
		}
		if !bytes.Equal(c.bytes, rest) {
			t.Errorf("%d bytes are left to the caller, want %d", len(c.bytes), len(rest))
		}
	})
}
