package rig_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

func TestMain(m *testing.M) {
	// The processes that the tests start are this one again.
	rig.Play(map[string]io.Closer{"role": &role{}}, patience)
	goleak.VerifyTestMain(m)
}

const patience = 100 * time.Millisecond

// A role that is deaf does not end.
type role struct {
	rig.Process
	deaf bool
}

func (r *role) Deaf(_ rig.None, _ *rig.None) error {
	r.deaf = true
	return nil
}

func (*role) Wait(rig.None, *rig.None) error { select {} }

func (*role) Die(rig.None, *rig.None) error {
	os.Exit(3)
	return nil
}

func (*role) Fail(_ rig.None, _ *rig.None) error { return errors.New("out of luck") }

func (r *role) Close() error {
	if r.deaf {
		select {}
	}
	return nil
}

func start(t *testing.T) *rig.Child {
	t.Helper()
	c, err := rig.Start("role", patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	return c
}

func TestUsage(t *testing.T) {
	c := start(t)
	var u rig.Usage
	if err := c.Call(t.Context(), "Usage", true, &u); err != nil || u.RSS == 0 || u.Peak < u.RSS || u.Heap == 0 || u.CPU == 0 {
		t.Errorf("got %+v, error %v; want figures", u, err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
}

func TestCallErrors(t *testing.T) {
	for method, want := range map[string]string{"Fail": "role: Fail: out of luck", "Die": "role: Die: ", "None": "role: None: rpc: can't find"} {
		if err := start(t).Call(t.Context(), method, rig.None{}, nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A process whose request was given up answers no other.
func TestGivenUp(t *testing.T) {
	c := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Call(ctx, "Wait", rig.None{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if err := c.Call(t.Context(), "Usage", false, new(rig.Usage)); err == nil {
		t.Error("got no error of a process that was killed")
	}
}

// The end of the input ends a process, whatever it does.
func TestStop(t *testing.T) {
	c := start(t)
	if err := c.Call(t.Context(), "Deaf", rig.None{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err == nil || err.Error() != "role: exit status 1" {
		t.Errorf("got %v, want that the process ended itself", err)
	}
}

func TestStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status")
	for content, want := range map[string]rig.Usage{ // no RSS: an error
		"Name:\tbench\nVmHWM:\t   20 kB\nVmRSS:\t   12 kB\n": {Peak: 20 << 10, RSS: 12 << 10},
		"":                              {},
		"VmHWM:\t20 kB\n":               {Peak: 20 << 10},
		"VmHWM:\t20\nVmRSS:\t12 kB\n":   {},
		"VmHWM:\t20 B\nVmRSS:\t12 kB\n": {},
		"VmHWM:\tx kB\nVmRSS:\t12 kB\n": {},
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := rig.Status(path); got != want || (err != nil) != (want.RSS == 0) {
			t.Errorf("%q: got %+v, error %v; want %+v", content, got, err, want)
		}
	}
}

func TestPercentile(t *testing.T) {
	values := make([]int, 100)
	for i := range values {
		values[i] = 100 - i
	}
	for _, tt := range []struct{ p, want int }{{0, 1}, {50, 51}, {99, 100}, {100, 100}} {
		if got := rig.Percentile(values, tt.p); got != tt.want {
			t.Errorf("%d: got %d, want %d", tt.p, got, tt.want)
		}
	}
	if got := rig.Percentile([]int(nil), 50); got != 0 || values[0] != 100 {
		t.Errorf("got %d and a first value %d, want 0, and the values in their order", got, values[0])
	}
}
