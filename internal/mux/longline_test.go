package mux_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
)

const (
	mbit = 1_000_000 / 8
	gbit = 1000 * mbit
)

// lineConfig is a line with a round trip and a rate each way.
func lineConfig(roundTrip time.Duration, rate int) linktest.Config {
	way := linktest.Direction{Delay: roundTrip / 2, Rate: rate}
	return linktest.Config{Up: way, Down: way}
}

// longLine makes the two ends of a carrier on such a line.
func longLine(roundTrip time.Duration, rate int) func(testing.TB) (client, server net.Conn) {
	return func(t testing.TB) (client, server net.Conn) {
		link := linktest.New(lineConfig(roundTrip, rate))
		t.Cleanup(func() { link.Close() })
		return linkedPair(link)
	}
}

func linkedPair(link *linktest.Link) (client, server net.Conn) {
	client, near := net.Pipe()
	far, server := net.Pipe()
	link.Join(near, far)
	return client, server
}

// counter counts what is written to it, by the clock.
type counter struct {
	from, to time.Time
	n        int // bytes between from and to
}

func (c *counter) Write(p []byte) (int, error) {
	if now := time.Now(); now.After(c.from) && !now.After(c.to) {
		c.n += len(p)
	}
	return len(p), nil
}

// A stream that is opened with its session has the line's rate a second later,
// or sooner.
func TestLongLine(t *testing.T) {
	lines := []struct {
		roundTrip time.Duration
		rate      int
	}{
		{10 * time.Millisecond, 100 * mbit},
		{50 * time.Millisecond, 100 * mbit},
		{100 * time.Millisecond, 100 * mbit},
		{200 * time.Millisecond, 100 * mbit},
		{10 * time.Millisecond, gbit},
		{50 * time.Millisecond, gbit},
		{100 * time.Millisecond, gbit},
		{200 * time.Millisecond, gbit},
		{10 * time.Millisecond, 10 * gbit},
	}
	for _, line := range lines {
		for _, way := range []string{"up", "down"} {
			t.Run(fmt.Sprintf("%v %d Mbit/s %s", line.roundTrip, line.rate/mbit, way), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					client, server := sessions(t, longLine(line.roundTrip, line.rate), nil)
					from, to := connect(t, client, server, "")
					if way == "down" {
						from, to = to, from
					}
					go io.Copy(from, zeros{})
					// A second is for the longest one.
					start, during := min(time.Second, 20*line.roundTrip), 2*line.roundTrip
					got := &counter{from: began.Add(start), to: began.Add(start + during)}
					to.SetReadDeadline(got.to)
					io.Copy(got, to)
					if rate := float64(got.n) / during.Seconds(); rate < 0.9*float64(line.rate) {
						t.Errorf("got %.1f MB/s, want 90%% of %.1f", rate/1e6, float64(line.rate)/1e6)
					}
				})
			})
		}
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A stream that is opened beside a download waits for no more than the line holds, however slow
// that is: a frame is sent in parts there.
func TestSlowLineShared(t *testing.T) {
	for _, rate := range []int{6 << 10, 32 << 10, 128 << 10} {
		t.Run(fmt.Sprint(rate>>10, " KiB a second"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				way := linktest.Direction{Delay: 300 * time.Millisecond, Rate: rate, Buffer: 4 << 10}
				link := linktest.New(linktest.Config{Up: way, Down: way})
				t.Cleanup(func() { link.Close() })
				client, server := sessions(t, func(testing.TB) (client, server net.Conn) { return linkedPair(link) }, nil)
				asks, answers := connect(t, client, server, "")
				go io.Copy(io.Discard, asks)
				go answers.Write(make([]byte, 100*rate))
				time.Sleep(30 * time.Second)
				for range 3 {
					began := time.Now()
					near, far := connect(t, client, server, "?")
					go io.Copy(far, far)
					if _, err := io.ReadFull(near, make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
					// Two ways, a part that is being sent and what the line holds, or a frame of 32 KiB.
					most := max(time.Second, 700*time.Millisecond+time.Duration(12<<10)*time.Second/time.Duration(rate))
					if took := time.Since(began); took > most {
						t.Errorf("it took %v, want %v at most", took, most)
					}
					near.Close()
					far.Close()
				}
			})
		})
	}
}
