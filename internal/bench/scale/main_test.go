package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	scale "github.com/causewayproject/causeway/internal/bench/scale"
)

func TestMain(m *testing.M) {
	// The processes that the tests start are this one again.
	if name := os.Getenv(scale.RoleEnv); name != "" {
		if scale.Play(name, os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// isolate gives what the test starts a folder for the reports of races.
func isolate(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("GORACE", "atexit_sleep_ms=0 log_path="+filepath.Join(dir, "race"))
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

// TestShort runs all phases with few agents. Figures are for a machine that has
// time, as is that no dial fails: here it counts that there are some, and that
// agents come back.
func TestShort(t *testing.T) {
	isolate(t)
	out := t.TempDir()
	if err := scale.Run(t.Context(), out, t.Output()); err != nil {
		t.Fatal(err)
	}
	var res scale.Result
	b, err := os.ReadFile(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &res); err != nil {
		t.Fatal(err)
	}
	if n := len(res.Idle); n != 2 || res.Idle[1].Agents != 16 || res.Idle[1].Sessions != 32 {
		t.Errorf("got idle %+v, want 16 agents at last, with 32 sessions", res.Idle)
	}
	if d := res.Dials; d == nil || d.P50 == 0 || d.Forwarded == 0 {
		t.Errorf("got %+v, want dials, some of them forwarded", d)
	}
	if len(res.Restarts) != 6 {
		t.Errorf("got %d restarts, want 6", len(res.Restarts))
	}
	for _, r := range res.Restarts {
		checkRestart(t, r)
	}
	if s := res.Soak; s == nil || s.Dials.Dials == 0 || len(s.Restarts) == 0 && s.Kicked == 0 {
		t.Errorf("got %+v, want a soak with dials and accidents", s)
	}
	checkFiles(t, out)
}

func checkRestart(t *testing.T, r *scale.Restart) {
	t.Helper()
	var sessions int
	for _, n := range r.Shares {
		sessions += n
	}
	if sessions != 32 {
		t.Errorf("%s: got sessions %v, want 32 in all", r.What, r.Shares)
	}
	if r.Two <= 0 || r.One <= 0 || r.One > r.Two || r.Back < r.Left {
		t.Errorf("%s: got %+v, want times in their order", r.What, r)
	}
	if first := r.Curve[0]; r.Replicas > 1 && first.One > 0 || r.What == "restart of one" && first.Two == 16 {
		t.Errorf("%s: got %+v at first, want no session counted whose replica is to go", r.What, first)
	}
	if r.Replicas == 1 && r.Dials.Dials == 0 {
		t.Errorf("%s: got no dial", r.What)
	}
}

func checkFiles(t *testing.T, out string) {
	t.Helper()
	table, err := os.ReadFile(filepath.Join(out, "table.txt"))
	if err != nil || !strings.Contains(string(table), "kill of all") {
		t.Errorf("got table %q, error %v; want the restarts in it", table, err)
	}
}

// cancelling cancels at the first line of progress.
type cancelling struct{ cancel context.CancelFunc }

func (c cancelling) Write(b []byte) (int, error) {
	c.cancel()
	return len(b), nil
}

func TestCancelled(t *testing.T) {
	isolate(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := scale.Run(ctx, t.TempDir(), cancelling{cancel}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args, want string // phases; "": an error
		soak       time.Duration
	}{
		{"", "dials,idle,restart", 0},
		{"-soak=30m", "dials,idle,restart,soak", 30 * time.Minute},
		{"-phases=idle -soak=3m", "idle,soak", 3 * time.Minute},
		{"-phases=dials", "dials,idle", 0},
		{"-short", "dials,idle,restart,soak", time.Second},
		{"-phases=other", "", 0},
		{"-agents=100,10", "", 0},
		{"other", "", 0},
	} {
		phases, soak, err := scale.Parse(strings.Fields(tt.args)...)
		got := strings.Join(slices.Sorted(maps.Keys(phases)), ",")
		if got != tt.want || soak != tt.soak || (err != nil) != (tt.want == "") {
			t.Errorf("%q: got %q, soak %v, error %v; want %q, soak %v", tt.args, got, soak, err, tt.want, tt.soak)
		}
	}
}

func TestParseSteps(t *testing.T) {
	got, err := scale.ParseSteps("10,100")
	if err != nil || !slices.Equal(got, []int{10, 100}) {
		t.Errorf("got %v, error %v; want 10 and 100", got, err)
	}
	for _, bad := range []string{"", "6", "10,10", "10,", "x"} {
		if got, err := scale.ParseSteps(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestParseBusy(t *testing.T) {
	got, err := scale.ParseBusy("cpu  100 20 3 9999 8888 4 5 600 70 8\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if want := 7320 * time.Millisecond; got != want || err != nil {
		t.Errorf("got %v, error %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu a 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 8\n"} {
		if got, err := scale.ParseBusy(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestPercentile(t *testing.T) {
	values := make([]int, 100)
	for i := range values {
		values[i] = 100 - i
	}
	for _, tt := range []struct{ p, want int }{{0, 1}, {50, 51}, {99, 100}, {100, 100}} {
		if got := scale.Percentile(values, tt.p); got != tt.want {
			t.Errorf("%d: got %d, want %d", tt.p, got, tt.want)
		}
	}
	if got := scale.Percentile(nil, 50); got != 0 || values[0] != 100 {
		t.Errorf("got %d and a first value %d, want 0, and the values in their order", got, values[0])
	}
}

// Each figure that is over its limit is said to be missed.
func TestVerdicts(t *testing.T) {
	good := scale.Side{Heap: 40 << 10, RSS: 50 << 10, CPU: 0.05}
	fat := scale.Side{Heap: 41 << 10, RSS: 60 << 10, CPU: 0.05}
	busy := scale.Side{Heap: 40 << 10, RSS: 50 << 10, CPU: 0.11}
	light := scale.Side{Heap: 30 << 10, RSS: 49 << 10}
	idle := func(n int, s scale.Side) scale.Idle {
		return scale.Idle{Agents: n, Sessions: 2 * n, ServerSide: s, AgentSide: good}
	}
	failed := scale.DialCount{Dials: 10, Failed: map[string]int{"no agent": 1}}
	for _, tt := range []struct {
		name string
		res  scale.Result
		want string
	}{
		{"good", scale.Result{Idle: []scale.Idle{idle(100, good), idle(5000, good)}}, ""},
		{"fat", scale.Result{Idle: []scale.Idle{idle(5000, fat)}}, "memory of an idle agent, replicas"},
		{"busy", scale.Result{Idle: []scale.Idle{idle(5000, busy)}}, "CPU of the idle agents, replicas"},
		{"grows", scale.Result{Idle: []scale.Idle{idle(100, light), idle(5000, good)}}, "memory of an agent beside that among 100, replicas"},
		{"late", scale.Result{Restarts: []*scale.Restart{{What: "one", Replicas: 1, Two: 31 * time.Second}}}, "one, all with two sessions"},
		{"all late", scale.Result{Restarts: []*scale.Restart{{What: "all", Replicas: 3, Two: 61 * time.Second}}}, "all, all with two sessions"},
		{"dials", scale.Result{Dials: scale.NewDialling(failed)}, "dials"},
		{"restart with dials", scale.Result{Restarts: []*scale.Restart{{What: "one", Replicas: 1, Dials: failed}}}, "one, dials"},
		{"kill with dials", scale.Result{Restarts: []*scale.Restart{{What: "one", Replicas: 1, Killed: true, Dials: failed}}}, ""},
		{"all in time", scale.Result{Restarts: []*scale.Restart{{What: "all", Replicas: 3, Two: 59 * time.Second}}}, ""},
	} {
		if got := strings.Join(tt.res.Missed(), "; "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
