package scale

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// A meter says how many of the machine's cores are busy, for the fleet and for
// whatever else.
type meter struct {
	fleet     *fleet
	began     time.Time
	busy, own time.Duration
}

func (f *fleet) startMeter() meter {
	m := meter{fleet: f, began: time.Now()}
	stat, err := os.ReadFile("/proc/stat")
	if err == nil {
		m.busy, err = parseBusy(string(stat))
	}
	if err != nil {
		f.Fatal(err)
	}
	u := f.sumUsage(false)
	m.own = u[0].CPU + u[1].CPU
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		cpu, err := rig.CPU(who)
		if err != nil {
			f.Fatal(err)
		}
		m.own += cpu
	}
	return m
}

func (m meter) read() string {
	now := m.fleet.startMeter()
	took := now.began.Sub(m.began).Seconds()
	own := (now.own - m.own).Seconds() / took
	return fmt.Sprintf("cores busy for the fleet %.2f, for others %.2f", own, max((now.busy-m.busy).Seconds()/took-own, 0))
}

// parseBusy is the time that the machine's cores have worked, for all programs,
// by the line of all cores: user, nice, system, idle, iowait, irq, softirq, steal,
// in hundredths of a second; what follows is counted in user.
func parseBusy(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("no line of all cores: %q", line)
	}
	var sum time.Duration
	for i, field := range f[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		if i != 3 && i != 4 { // idle, and waiting for a disk
			sum += time.Duration(n) * (time.Second / 100)
		}
	}
	return sum, nil
}

func TestParseBusy(t *testing.T) {
	got, err := parseBusy("cpu  100 20 3 9999 8888 4 5 600 70 8\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if want := 7320 * time.Millisecond; got != want || err != nil {
		t.Errorf("got %v, error %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu a 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 8\n"} {
		if got, err := parseBusy(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func roundForLog(d time.Duration) time.Duration {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < time.Second:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(100 * time.Millisecond)
}
