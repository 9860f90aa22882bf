package mux_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// settled waits until a session has nothing left of its streams.
func settled(t testing.TB, name string, s *mux.Session) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		left := s.Leftovers()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: left over: %v", name, left)
			return
		}
		runtime.Gosched()
	}
}

// Many streams that end in every way: nothing is left of them.
func TestRandomAborts(t *testing.T) {
	for _, carrier := range carriers {
		t.Run(carrier.name, func(t *testing.T) {
			client, server := sessions(t, carrier.pair, nil)
			before := runtime.NumGoroutine()
			var serving, clients sync.WaitGroup
			serving.Go(func() {
				for seed := uint64(0); ; seed++ {
					st, err := server.Accept(t.Context())
					if err != nil {
						return
					}
					serving.Go(func() { abuse(st, rand.New(rand.NewPCG(seed, 1))) })
				}
			})
			for worker := range 20 {
				clients.Go(func() {
					random := rand.New(rand.NewPCG(uint64(worker), 2))
					for range 40 {
						st, err := client.Open(t.Context(), make([]byte, random.IntN(3000)))
						if err != nil {
							t.Error(err)
							return
						}
						abuse(st, random)
					}
				})
			}
			clients.Wait()
			settled(t, "client", client)
			settled(t, "server", server)
			for runtime.NumGoroutine() > before+1 { // the one that accepts
				runtime.Gosched()
			}
			if client.Err() != nil || server.Err() != nil {
				t.Errorf("the sessions ended: %v, %v", client.Err(), server.Err())
			}
			client.Close()
			serving.Wait()
		})
	}
}

// abuse uses st in some way and ends it in some way.
func abuse(st *mux.Stream, random *rand.Rand) {
	st.SetDeadline(time.Now().Add(time.Duration(random.IntN(20)) * time.Millisecond))
	size, end, early := random.IntN(400<<10), random.IntN(5), random.IntN(3) == 0
	written := make(chan struct{})
	go func() {
		defer close(written)
		st.Write(make([]byte, size))
		if end != 1 {
			st.CloseWrite()
		}
	}()
	if !early {
		io.CopyN(io.Discard, st, int64(random.IntN(400<<10)))
		<-written
	}
	switch end {
	case 0, 1:
		st.Reset(mux.CodeUser)
	case 2:
		io.Copy(io.Discard, st)
	}
	st.Close()
	<-written
}

// Sessions that end while streams are used leave nothing either.
func TestSessionEndsUnderLoad(t *testing.T) {
	for i := range 30 {
		a, b := tcpPair(t)
		client, server := mux.Client(a, nil), mux.Server(b, nil)
		var users sync.WaitGroup
		for range 10 {
			opened, accepted := connect(t, client, server, "x")
			for _, st := range []*mux.Stream{opened, accepted} {
				users.Go(func() {
					st.Write(make([]byte, 1<<20))
					st.Close()
				})
				users.Go(func() { io.Copy(io.Discard, st) })
			}
		}
		switch i % 3 {
		case 0:
			client.Close()
		case 1:
			a.Close()
		case 2:
			go server.Close()
			server.Close()
		}
		users.Wait()
		client.Close()
		server.Close()
		for name, s := range map[string]*mux.Session{"client": client, "server": server} {
			left := s.Leftovers()
			delete(left, "incoming") // which the end of a session doesn't count down
			if len(left) > 0 {
				t.Errorf("%s: left over: %v", name, left)
			}
		}
	}
}

func TestCopy(t *testing.T) {
	kinds := []struct {
		name string
		pair func(testing.TB) (client, server net.Conn)
	}{{"tcp", tcpPair}, {"pipe", pipePair}, {"tls", tlsPair}}
	for _, size := range []int{0, 1, 5000, 3 << 20} {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%s %d", kind.name, size), func(t *testing.T) {
				client, server := sessions(t, tcpPair, nil)
				opened, accepted := connect(t, client, server, "")
				from, source := kind.pair(t)
				sink, to := kind.pair(t)
				want := make([]byte, size)
				rand.NewChaCha8([32]byte{}).Read(want)
				var parts sync.WaitGroup
				parts.Go(func() {
					from.Write(want)
					from.Close()
				})
				parts.Go(func() {
					if n, err := opened.ReadFrom(source); n != int64(size) || err != nil {
						t.Errorf("ReadFrom: got %d and error %v, want %d", n, err, size)
					}
					opened.CloseWrite()
				})
				parts.Go(func() {
					if n, err := accepted.WriteTo(to); n != int64(size) || err != nil {
						t.Errorf("WriteTo: got %d and error %v, want %d", n, err, size)
					}
					to.Close()
				})
				if got, err := io.ReadAll(sink); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %d bytes and error %v, want %d", len(got), err, size)
				}
				parts.Wait()
				source.Close()
				sink.Close()
			})
		}
	}
}

// What waits for an idle connection holds no buffer.
func TestIdleStreamsHoldNoBuffers(t *testing.T) {
	client, server := sessions(t, tcpPair, nil)
	var copies sync.WaitGroup
	var targets []net.Conn
	defer func() {
		for _, target := range targets {
			target.Close()
		}
		copies.Wait()
	}()
	for range 50 {
		opened, accepted := connect(t, client, server, "")
		target, source := tcpPair(t)
		targets = append(targets, target)
		copies.Go(func() {
			opened.ReadFrom(source)
			source.Close()
		})
		target.Write([]byte("x"))
		read(t, accepted, "x")
	}
	deadline := time.Now().Add(10 * time.Second)
	for client.Held()+server.Held() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("they hold %d and %d bytes", client.Held(), server.Held())
		}
		runtime.Gosched()
	}
}
