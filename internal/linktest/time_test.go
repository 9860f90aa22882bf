package linktest_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
)

// arrival returns when so many bytes have come, since began.
func arrival(t *testing.T, conn net.Conn, n int, began time.Time) time.Duration {
	t.Helper()
	if _, err := io.ReadFull(conn, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

func about(got, want time.Duration) bool { return (got - want).Abs() < 100*time.Microsecond }

func TestDelayAndRate(t *testing.T) {
	tests := []struct {
		name      string
		direction linktest.Direction
		size      int
		want      time.Duration
	}{
		{"plain", linktest.Direction{}, 100_000, 0},
		{"delay", linktest.Direction{Delay: 50 * time.Millisecond}, 100_000, 50 * time.Millisecond},
		{"rate", linktest.Direction{Rate: 10_000}, 100_000, 10 * time.Second},
		{"both", linktest.Direction{Delay: 3 * time.Second, Rate: 10_000}, 100_000, 13 * time.Second},
		{"slow", linktest.Direction{Rate: 10}, 1000, 100 * time.Second},
		{"more than the buffer", linktest.Direction{Delay: time.Second, Rate: 1_000_000, Buffer: 1}, 10_000_000, 11 * time.Second},
	}
	for _, tt := range tests {
		for _, way := range []string{"up", "down"} {
			t.Run(tt.name+" "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := linktest.Config{Up: tt.direction}
					if way == "down" {
						c = linktest.Config{Down: tt.direction}
					}
					src, dst, _ := piped(t, c)
					if way == "down" {
						src, dst = dst, src
					}
					began := time.Now()
					go src.Write(make([]byte, tt.size))
					if got := arrival(t, dst, tt.size, began); !about(got, tt.want) {
						t.Errorf("got %v, want %v", got, tt.want)
					}
					began = time.Now()
					go dst.Write(make([]byte, 10))
					if got := arrival(t, src, 10, began); got != 0 {
						t.Errorf("the other way took %v", got)
					}
				})
			})
		}
	}
}

// TestDelayIsNoRate: what follows is not delayed by what went before.
func TestDelayIsNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, target, _ := piped(t, linktest.Config{Up: linktest.Direction{Delay: time.Second}})
		began := time.Now()
		send(t, client, "a")
		time.Sleep(100 * time.Millisecond)
		send(t, client, "b")
		for i, want := range []time.Duration{time.Second, 1100 * time.Millisecond} {
			if got := arrival(t, target, 1, began); got != want {
				t.Errorf("byte %d: got %v, want %v", i, got, want)
			}
		}
	})
}

func TestRateIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, target, link := piped(t, linktest.Config{Up: linktest.Direction{Rate: 10_000}})
		client2, target2 := join(t, link)
		began := time.Now()
		go client.Write(make([]byte, 10_000))
		go client2.Write(make([]byte, 10_000))
		first := make(chan time.Duration)
		go func() { first <- arrival(t, target, 10_000, began) }()
		got := max(arrival(t, target2, 10_000, began), <-first)
		if !about(got, 2*time.Second) {
			t.Errorf("got %v for the later one, want 2 s", got)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, target, _ := piped(t, linktest.Config{Up: linktest.Direction{Delay: 2 * time.Second, Rate: 1000, Buffer: 3000}})
		written := 0
		go func() {
			for {
				if _, err := client.Write(make([]byte, 1)); err != nil {
					return
				}
				written++
			}
		}()
		synctest.Wait()
		if written != 5000 {
			t.Errorf("the link took %d bytes, want 5,000", written)
		}
		time.Sleep(time.Hour) // nobody reads what arrives
		if written != 5000 {
			t.Errorf("the link took %d bytes, want 5,000 still", written)
		}
		arrival(t, target, 100, time.Now())
		synctest.Wait()
		if written != 5100 {
			t.Errorf("the link took %d bytes, want 5,100", written)
		}
	})
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, target, link := piped(t, linktest.Config{Up: linktest.Direction{Delay: time.Second}})
		began := time.Now()
		send(t, client, "under way")
		time.Sleep(time.Second / 2)
		link.Set(linktest.Config{Up: linktest.Direction{Stall: true}})
		send(t, client, ", held")
		go func() {
			time.Sleep(time.Minute)
			link.Set(linktest.Config{})
		}()
		if got, want := arrival(t, target, 15, began), time.Minute+time.Second/2; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestStallHoldsWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, target, link := piped(t, linktest.Config{Down: linktest.Direction{Stall: true}})
		began := time.Now()
		send(t, target, "held")
		target.Close() // an end is held too
		go func() {
			time.Sleep(time.Minute)
			link.Set(linktest.Config{})
		}()
		if got := arrival(t, client, 4, began); got != time.Minute {
			t.Errorf("got %v, want a minute", got)
		}
		if n, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("got %d bytes, %v; want EOF", n, err)
		}
	})
}

// TestSet: bytes keep the delay and the rate that they came in with.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, target, link := piped(t, linktest.Config{Up: linktest.Direction{Rate: 1000, Delay: time.Second}})
		began := time.Now()
		go func() {
			client.Write(make([]byte, 256))
			synctest.Wait()
			link.Set(linktest.Config{Up: linktest.Direction{Rate: 100}})
			client.Write(make([]byte, 300))
		}()
		if got, want := arrival(t, target, 256, began), 1256*time.Millisecond; !about(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got, want := arrival(t, target, 300, began), 3*time.Second; !about(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestPipeHasNoHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, target, _ := piped(t, linktest.Config{Up: linktest.Direction{Delay: time.Second}})
		began := time.Now()
		send(t, client, "all")
		time.Sleep(time.Second / 2)
		client.Close()
		expect(t, target, "all")
		if n, err := target.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("got %d bytes, %v; want EOF", n, err)
		}
		if took, want := time.Since(began), 1500*time.Millisecond; took != want {
			t.Errorf("the end took %v, want %v", took, want)
		}
	})
}
