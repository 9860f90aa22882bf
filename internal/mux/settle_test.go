package mux_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/causewayproject/causeway/internal/mux"
)

// What streams wrote before they were closed comes before the end of one that
// was closed when the session had settled. The peer begins to read when all
// of it waits.
func TestSettle(t *testing.T) {
	near, far := net.Pipe()
	client := mux.Client(near, nil)
	defer client.Close()
	want := bytes.Repeat([]byte("causeway"), 12<<10)
	control, err := client.Open(t.Context(), []byte("c"))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		data, err := client.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := data.Write(want); err != nil {
			t.Fatal(err)
		}
		data.Close()
	}
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(client.Settle(t.Context(), 1), control.CloseWrite()) }()
	if got := bytesBeforeEnd(t, far, 1); got != 4*len(want) {
		t.Errorf("got %d bytes before the end of the control stream, want %d", got, 4*len(want))
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// bytesBeforeEnd reads frames up to the one with the FIN of a stream, and
// counts the payload of the others.
func bytesBeforeEnd(t *testing.T, r io.Reader, stream uint32) (n int) {
	t.Helper()
	var header [12]byte
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			t.Fatal(err)
		}
		id := binary.BigEndian.Uint32(header[4:])
		if header[1] == 0 {
			length := binary.BigEndian.Uint32(header[8:])
			if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
				t.Fatal(err)
			}
			if id != stream {
				n += int(length)
			}
		}
		if fin := header[3]&4 != 0; fin && id == stream {
			return n
		}
	}
}

// A stream is open before the session has settled, or not at all.
func TestSettleOpensNoMore(t *testing.T) {
	for range 200 {
		client, server := sessions(t, pipePair, nil)
		connect(t, client, server, "control")
		settled := make(chan error, 1)
		go func() { settled <- client.Settle(t.Context(), 1) }()
		st, err := client.Open(t.Context(), nil)
		switch {
		case err == nil:
			if len(settled) > 0 {
				t.Fatal("it has settled with one stream more")
			}
			st.Reset(0)
		case !errors.Is(err, mux.ErrSettled):
			t.Fatal(err)
		}
		if err := <-settled; err != nil {
			t.Fatal(err)
		}
		if _, err := client.Open(t.Context(), nil); !errors.Is(err, mux.ErrSettled) {
			t.Fatalf("got %v after it has settled, want ErrSettled", err)
		}
		client.Close()
		server.Close()
	}
}

func TestSettleEnds(t *testing.T) {
	client, server := sessions(t, pipePair, nil)
	connect(t, client, server, "x")
	ctx, cancel := context.WithCancel(t.Context())
	settled := make(chan error, 2)
	go func() { settled <- client.Settle(ctx, 0) }()
	cancel()
	if err := <-settled; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	go func() { settled <- client.Settle(t.Context(), 0) }()
	client.Close()
	if err := <-settled; !errors.Is(err, mux.ErrSessionClosed) {
		t.Errorf("got %v, want the session's end", err)
	}
}
