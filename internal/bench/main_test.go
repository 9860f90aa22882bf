package main_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	bench "github.com/causewayproject/causeway/internal/bench"
)

func TestMain(m *testing.M) {
	// The processes that the tests start are this one again.
	if name := os.Getenv(bench.RoleEnv); name != "" {
		if bench.Play(name, os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var tiny = bench.Sizes{Bytes: 2e6, Dials: 20, Trips: 20, Agents: 4, Streams: 5}

// isolate gives what the test starts a folder, which is to be empty at the end:
// the beds' folders go after their processes, and races are reported into it.
func isolate(t *testing.T) {
	t.Helper()
	isolateRacy(t, "race")
}

// isolateRacy is isolate with another name in the folder, or a path outside of
// it, for the reports of races.
func isolateRacy(t *testing.T, reports string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	if !filepath.IsAbs(reports) {
		reports = filepath.Join(dir, reports)
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0 log_path="+reports)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("got files %q, error %v; want none", left, err)
		}
		for _, name := range left {
			if b, err := os.ReadFile(name); err == nil {
				t.Logf("%s:\n%s", name, b)
			}
		}
	})
}

// TestRows takes the measures of each row. That of 200 stalled streams is one
// stalled stream's with another number.
func TestRows(t *testing.T) {
	for name := range strings.SplitSeq(bench.RowNames(), ",") {
		t.Run(name, func(t *testing.T) {
			if name == "remotedialer" {
				// Its sessions race when they end, by themselves.
				isolateRacy(t, filepath.Join(t.TempDir(), "race"))
			} else {
				isolate(t)
			}
			res, err := bench.Run(t.Context(), []string{name}, "down1,down8,up1,latency,stalled1,agents,streams", tiny, "", t.Output())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range res.Failures {
				t.Errorf("%s: %s", f.Measure, f.Err)
			}
			for key, v := range res.Rows[0].Values {
				if v.Unit == "" {
					t.Errorf("%s: got no unit", key)
				}
			}
			checkValues(t, res.Rows[0].Values, "down1.rate", "down8.rate", "up1.rate",
				"latency.dial.p50", "latency.trip.p99", "stalled1.dial.p99", "stalled1.trip.p50")
			if name != "loopback" {
				checkValues(t, res.Rows[0].Values, "down1.cpu", "down8.cpu", "up1.cpu", "down8.peak.server", "streams.server.rss")
			}
			if name != "loopback" && name != "splice" && name != "gateway-plain" {
				checkValues(t, res.Rows[0].Values, "down8.peak.agent", "streams.agent.rss")
			}
		})
	}
}

// TestLong takes the rate over a line of 10 ms and 100 Mbit/s.
func TestLong(t *testing.T) {
	isolate(t)
	res, err := bench.Run(t.Context(), []string{"causeway"}, "long-100-10", tiny, "", t.Output())
	if err != nil || len(res.Failures) > 0 {
		t.Fatalf("got %+v, error %v", res, err)
	}
	checkValues(t, res.Rows[0].Values, "long-100-10.down", "long-100-10.up")
}

func checkValues(t *testing.T, values map[string]*bench.Series, keys ...string) {
	t.Helper()
	for _, key := range keys {
		v := values[key]
		if v == nil || len(v.Runs) != 1 || v.Median != v.Runs[0] {
			t.Errorf("%s: got %+v, want a value", key, v)
			continue
		}
		// So few streams may cost less than what else comes and goes.
		if v.Median <= 0 && !strings.HasSuffix(key, ".rss") {
			t.Errorf("%s: got %v, want more", key, v.Median)
		}
	}
}

// A row that fails is noted, and the others are measured.
func TestRunFailure(t *testing.T) {
	isolate(t)
	res, err := bench.Run(t.Context(), []string{"none", "loopback"}, "down1", tiny, "", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Failures) != 1 || res.Failures[0].Row != "none" || !strings.Contains(res.Failures[0].Err, `there is no row "none"`) {
		t.Errorf("got failures %+v, want one of none", res.Failures)
	}
	if len(res.Rows) != 2 || res.Rows[1].Values["down1.rate"] == nil {
		t.Errorf("got %+v, want a rate of loopback", res.Rows)
	}
}

// cancelling cancels at the first line of progress.
type cancelling struct{ cancel context.CancelFunc }

func (c cancelling) Write(b []byte) (int, error) {
	c.cancel()
	return len(b), nil
}

func TestRunCancelled(t *testing.T) {
	isolate(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := bench.Run(ctx, []string{"loopback", "limit"}, "down1", tiny, "", cancelling{cancel}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestProfiles(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	res, err := bench.Run(t.Context(), []string{"limit"}, "up1", tiny, dir, t.Output())
	if err != nil || len(res.Failures) > 0 {
		t.Fatalf("got %+v, error %v", res, err)
	}
	for _, name := range []string{"limit-up1-server.pprof", "limit-up1-agent.pprof"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() == 0 {
			t.Errorf("%s: got %v, error %v; want a profile", name, info, err)
		}
	}
}

func TestChoose(t *testing.T) {
	if _, err := bench.Choose("limit,nosuch"); err == nil || !strings.Contains(err.Error(), `"nosuch"`) {
		t.Errorf("got %v, want an error that names the row", err)
	}
	got, err := bench.Choose("yamux,limit")
	if err != nil || len(got) != 2 {
		t.Errorf("got %d rows, error %v; want two", len(got), err)
	}
}
