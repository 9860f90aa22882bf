package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"
)

// A request is a line of JSON on a role's standard input.
type request struct {
	Op      string
	Row     string
	Setup   setup
	Addr    string // whom to connect to; a profile's file
	N       int    // streams, agents
	Size    int64  // bytes of a stream
	Dials   int
	Trips   int
	Tidy    bool
	Timeout time.Duration
}

// A reply is a line of JSON on its standard output.
type reply struct {
	Err   string          `json:",omitempty"`
	Addr  string          `json:",omitempty"`
	N     int64           `json:",omitempty"`
	Took  time.Duration   `json:",omitempty"`
	Dials []time.Duration `json:",omitempty"`
	Trips []time.Duration `json:",omitempty"`
	Usage usage           `json:",omitzero"`
}

// A role is one of the four processes. Close ends all that it started.
type role interface {
	do(ctx context.Context, r request) (reply, error)
	io.Closer
}

func newRole(name string) (role, error) {
	switch name {
	case "target":
		return &targetRole{}, nil
	case "agent":
		return &agentRole{}, nil
	case "server":
		return &serverRole{}, nil
	case "client":
		return &clientRole{}, nil
	}
	return nil, fmt.Errorf("bench: there is no role %q", name)
}

// closeTimeout is how long a role may take to end.
const closeTimeout = 3 * time.Second

// play answers requests until the input ends: whoever started this process is
// then gone, or wants it to go.
func play(name string, in io.Reader, out io.Writer) error {
	// ^C reaches the whole group: the first process ends the others in order.
	signal.Ignore(syscall.SIGINT)
	r, err := newRole(name)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := raiseFiles(0); err != nil {
		return err
	}
	requests, gone := readRequests(in)
	w := json.NewEncoder(out)
	for q := range requests {
		if err := w.Encode(answer(gone, r, q)); err != nil {
			return fmt.Errorf("bench: %s: %w", name, err)
		}
	}
	return nil
}

// readRequests ends the context when the input ends, even during a request, and
// some time later the process: it is not to wait for a peer's Close for longer.
func readRequests(in io.Reader) (<-chan request, context.Context) {
	ctx, cancel := context.WithCancel(context.Background())
	requests := make(chan request)
	go func() {
		defer cancel()
		defer close(requests)
		d := json.NewDecoder(bufio.NewReader(in))
		for {
			var q request
			if d.Decode(&q) != nil {
				time.AfterFunc(closeTimeout, func() { os.Exit(1) })
				return
			}
			requests <- q
		}
	}()
	return requests, ctx
}

func answer(ctx context.Context, r role, q request) reply {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	var a reply
	var err error
	switch q.Op {
	case "usage":
		a.Usage, err = roleUsage(r, q.Tidy)
	case "reset":
		err = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	case "profile":
		err = startProfile(q.Addr)
	case "profiled":
		pprof.StopCPUProfile()
	default:
		a, err = r.do(ctx, q)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// startProfile writes to the file until pprof is stopped, which closes nothing:
// the file ends with the process.
func startProfile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("bench: profile: %w", err)
	}
	return pprof.StartCPUProfile(f)
}

func roleUsage(r role, tidy bool) (usage, error) {
	if p, ok := r.(parent); ok {
		if pids := p.children(); pids != nil {
			return childrenUsage(pids)
		}
	}
	return ownUsage(tidy)
}

var errOp = errors.New("bench: there is no such request")
