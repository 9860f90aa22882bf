package mux_test

import (
	"bytes"
	"context"
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
	want := bytes.Repeat([]byte("causeway"), 7<<10)
	control, err := client.Open(t.Context(), []byte("c"))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		data, err := client.Open(t.Context(), []byte("d"))
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
	server := mux.Server(far, nil)
	defer server.Close()
	farControl := accept(t, server)
	if got, err := io.ReadAll(farControl); string(got) != "c" || err != nil {
		t.Fatalf("got %q, %v, want c", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var data []*mux.Stream
	for range 4 {
		data = append(data, accept(t, server))
	}
	server.Close()
	for _, d := range data {
		if got, err := io.ReadAll(d); len(got) != 1+len(want) || err != nil {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, 1+len(want))
		}
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
