package scale

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

var (
	replicasFlag = flag.String("replicas", "", "numbers of replicas for TestGrowth, with commas between, ascending (default: 2 and 3 for some seconds, to see that it works)")
	growthTable  = flag.String("growth", "", "file that TestGrowth appends its table to")
)

// traffic counts the bytes of connections that this process has dialed, both ways, if
// that is wanted: a connection that counts is not read the way that a socket is.
type traffic struct {
	wanted  bool
	in, out atomic.Int64
}

func (t *traffic) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || !t.wanted {
		return conn, err
	}
	return countedConn{conn, t}, nil
}

type countedConn struct {
	net.Conn
	traffic *traffic
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.in.Add(int64(n))
	return n, err
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.traffic.out.Add(int64(n))
	return n, err
}

// Bytes is what was read and written.
type Bytes struct{ In, Out int64 }

func (t *traffic) Traffic(_ rig.None, b *Bytes) error {
	*b = Bytes{t.in.Load(), t.out.Load()}
	return nil
}

// growth is what a fleet of some size costs.
type growth struct {
	Replicas     int
	IdleBytes    float64 // a second and replica, to and from its peers
	IdleCPU      float64 // of a core, a replica
	Memory       float64 // MiB of heap and stacks, a replica
	DialCPU      float64 // ms of all replicas, a dial
	DialBytes    float64 // between replicas, a dial
	AbsentCPU    float64 // the same for a cluster without an agent
	AbsentBytes  float64
	RestartBytes float64 // KiB that an agent reads in a rolling restart of all replicas
}

const growthHeader = "# replicas  idle B/s  idle CPU %  memory MiB  dial CPU ms  dial B  absent CPU ms  absent B  restart KiB"

func (g growth) String() string {
	return fmt.Sprintf("%10d %9.0f %11.3f %11.2f %12.3f %7.0f %14.3f %9.0f %12.1f", g.Replicas, g.IdleBytes, 100*g.IdleCPU, g.Memory,
		g.DialCPU, g.DialBytes, g.AbsentCPU, g.AbsentBytes, g.RestartBytes)
}

// TestGrowth measures what more replicas cost, with few agents.
func TestGrowth(t *testing.T) {
	p, sizes := short, "2,3"
	agents, during := 4, time.Second
	if *replicasFlag != "" {
		p, sizes = full, *replicasFlag
		agents, during = 12, 20*time.Second
	}
	lines := []string{growthHeader}
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			t.Fatalf("numbers of replicas %q: want some above 1", sizes)
		}
		t.Run(text, func(t *testing.T) {
			p.replicas, p.counted = n, true
			g := newFleet(t, p).measureGrowth(agents, during)
			t.Log("\n" + growthHeader + "\n" + g.String())
			lines = append(lines, g.String())
		})
	}
	if *growthTable != "" {
		if err := os.WriteFile(*growthTable, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// spent is what replicas have used, all together.
type spent struct {
	cpu   time.Duration
	bytes int64
}

func (f *fleet) spent() spent {
	s := spent{cpu: f.sumUsage(false)[0].CPU}
	for _, r := range f.replicas {
		var b Bytes
		f.call(r.process, "Traffic", rig.None{}, &b)
		s.bytes += b.In + b.Out
	}
	return s
}

func (f *fleet) measureGrowth(agents int, during time.Duration) growth {
	n := float64(len(f.replicas))
	g := growth{Replicas: len(f.replicas)}
	f.addAgents(agents)
	f.sendPlaces()
	f.sleep(during / 2) // what the start brought is over

	before, began := f.spent(), time.Now()
	f.sleep(during)
	after, took := f.spent(), time.Since(began).Seconds()
	g.IdleBytes = float64(after.bytes-before.bytes) / took / n
	g.IdleCPU = (after.cpu - before.cpu).Seconds() / took / n
	g.Memory = float64(f.sumUsage(true)[0].Heap) / n / (1 << 20)

	for _, s := range f.replicas {
		f.call(s.process, "Places", []place{}, nil)
	}
	ticks := f.cost(during, func(d Dials) bool { return d.count() == 0 })
	f.sendPlaces()
	dials := f.cost(during, func(d Dials) bool { return d.count() > 0 && len(d.Failed) == 0 })
	g.DialCPU, g.DialBytes = dials.less(ticks)
	for _, s := range f.replicas {
		f.call(s.process, "Places", []place{{"nobody", "127.0.0.1:1"}}, nil)
	}
	absent := f.cost(during, func(d Dials) bool { return d.count() > 0 && len(d.Took) == 0 })
	g.AbsentCPU, g.AbsentBytes = absent.less(ticks)
	f.sendPlaces()

	read := f.readByAgents()
	for _, s := range f.replicas {
		f.gone = append(f.gone, s.name)
		f.setReady(s, false)
		f.call(s.process, "Leave", rig.None{}, new(Dials))
		if err := s.process.Stop(); err != nil {
			f.Fatal(err)
		}
		s.process = nil
		f.startReplica(s)
		f.waitJoined(s)
	}
	f.waitSessions()
	g.RestartBytes = float64(f.readByAgents()-read) / float64(agents) / (1 << 10)
	return g
}

// cost is what dials have cost.
type cost struct {
	spent
	dials int
}

// less returns the CPU in milliseconds and the bytes of one dial, without what it costs to
// be about to dial.
func (c cost) less(ticks cost) (cpu, bytes float64) {
	n := float64(c.dials)
	return 1000 * (c.cpu - ticks.cpu).Seconds() / n, float64(c.bytes-ticks.bytes) / n
}

// cost dials by all replicas.
func (f *fleet) cost(during time.Duration, want func(Dials) bool) cost {
	f.collectDials()
	before := f.spent()
	f.dialAt(f.restartRate)
	f.sleep(during)
	f.dialAt(0)
	d := f.collectDials()
	after := f.spent()
	if !want(d) {
		f.Fatalf("got %v", d)
	}
	return cost{spent{after.cpu - before.cpu, after.bytes - before.bytes}, d.count()}
}

// readByAgents is what the agents have read from the replicas.
func (f *fleet) readByAgents() (sum int64) {
	for _, a := range f.agents {
		var b Bytes
		f.call(a, "Traffic", rig.None{}, &b)
		sum += b.In
	}
	return sum
}
