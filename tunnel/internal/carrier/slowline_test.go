package carrier_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// TestSlowLine: a session lives as long as the line carries something, however long a
// transfer takes, and ends 30 to 60 seconds after the line has died.
func TestSlowLine(t *testing.T) {
	const kbit = 1000 / 8
	tests := []struct {
		rate, buffer  int // bytes a second, and bytes on the line; a negative buffer is gulp's
		streams, each int // transfers, and their bytes
		ways          string
		ws, old       bool // on a WebSocket; the receiver sends nothing unasked, as earlier versions
	}{
		{48 * kbit, 0, 1, 400_000, "up", false, false},
		{48 * kbit, 0, 1, 400_000, "down", false, false},
		{48 * kbit, 1 << 20, 1, 400_000, "down", false, false},
		{48 * kbit, 1 << 20, 1, 400_000, "up down", false, false},
		{48 * kbit, 1 << 20, 1, 400_000, "up", true, false},
		{128 * kbit, 0, 6, 500_000, "up", false, false},
		{128 * kbit, 4 << 20, 6, 500_000, "up", false, false},
		{2 << 10, 0, 1, 200_000, "up", false, false},
		{2 << 10, 0, 1, 200_000, "down", true, false},
		{700, 0, 1, 100_000, "up", false, false},
		{2 << 10, -64 << 10, 1, 200_000, "up", false, false},
		{2 << 10, -64 << 10, 1, 200_000, "down", false, false},
		{1500, -64 << 10, 1, 200_000, "up", false, false},
		{48 * kbit, -512 << 10, 1, 1_500_000, "up", false, false},
		{48 * kbit, -512 << 10, 1, 1_500_000, "up down", false, false},
		{2 << 10, -64 << 10, 1, 200_000, "up down", false, false},
		{1500, -64 << 10, 1, 200_000, "up down", true, false},
		{48 * kbit, 0, 1, 400_000, "down", false, true},
		{2 << 10, 0, 1, 200_000, "up", false, true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				way := linktest.Direction{Rate: tt.rate, Buffer: tt.buffer, Delay: 100 * time.Millisecond}
				link := linktest.New(linktest.Config{Up: way, Down: way})
				defer link.Close()
				a, near := net.Pipe()
				far, b := net.Pipe()
				var proxy sync.WaitGroup
				defer proxy.Wait()
				if tt.buffer < 0 {
					proxy.Go(func() { gulp(far, near, tt.rate, -tt.buffer) })
					proxy.Go(func() { gulp(near, far, tt.rate, -tt.buffer) })
				} else {
					link.Join(near, far)
				}
				if tt.ws {
					a, b = websocket.NewConn(a, true, nil), websocket.NewConn(b, false, nil)
				}
				agentEnd, serverEnd := carriers(t, a, b)
				config := &mux.Config{}
				if tt.old {
					config.ProbeAfter, config.DeadAfter = -1, -1 // sends nothing unasked
				}
				agent, server := mux.Client(agentEnd, config), mux.Server(serverEnd, config)
				defer agent.Close()
				defer server.Close()
				var wg sync.WaitGroup
				for _, from := range map[string][]*mux.Session{"up": {agent}, "down": {server}, "up down": {agent, server}}[tt.ways] {
					to := agent
					if from == agent {
						to = server
					}
					for range tt.streams {
						wg.Go(func() {
							st, err := from.Open(t.Context(), []byte("x"))
							if err == nil {
								_, err = st.Write(make([]byte, tt.each-1))
							}
							if err == nil {
								err = st.CloseWrite()
							}
							if err != nil {
								t.Error(err)
							}
						})
						wg.Go(func() {
							st, err := to.Accept(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							if n, err := io.Copy(io.Discard, st); n != int64(tt.each) || err != nil {
								t.Errorf("got %d bytes and %v, want %d", n, err, tt.each)
							}
						})
					}
				}
				wg.Wait()
				if t.Failed() || tt.old || tt.buffer < 0 {
					return
				}
				link.Set(linktest.Config{Up: linktest.Direction{Drop: true}, Down: linktest.Direction{Drop: true}})
				died := time.Now()
				st, err := agent.Open(t.Context(), make([]byte, 60_000))
				if err != nil {
					t.Fatal(err)
				}
				go st.Write(make([]byte, 1<<20))
				<-agent.Done()
				if took := time.Since(died); took > time.Minute {
					t.Errorf("a dead line was found after %v, want a minute at most", took)
				}
			})
		})
	}
}

// gulp passes what src sends to dst at a rate, as a proxy with one buffer: it fills that, and reads no more
// before it is empty.
func gulp(dst, src net.Conn, rate, buffer int) {
	defer dst.Close()
	buf := make([]byte, buffer)
	for {
		n, err := src.Read(buf)
		for n < buffer && err == nil {
			src.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			var m int
			m, err = src.Read(buf[n:])
			n += m
		}
		src.SetReadDeadline(time.Time{})
		for at := 0; at < n; at += rate / 10 {
			time.Sleep(time.Second / 10)
			if _, err := dst.Write(buf[at:min(at+rate/10, n)]); err != nil {
				return
			}
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}
