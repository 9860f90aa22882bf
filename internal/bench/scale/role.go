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

// A request is a line of JSON on a role's standard input, a reply one on its
// standard output. There is one at a time.
type request struct {
	Op   string
	Args json.RawMessage `json:",omitempty"`
}

type reply struct {
	Err   string          `json:",omitempty"`
	Value json.RawMessage `json:",omitempty"`
}

// An op is what a role does when it is asked to.
type op func(ctx context.Context, args json.RawMessage) (any, error)

// on is an op whose arguments are of type A, and whose value is of type V.
func on[A, V any](f func(context.Context, A) (V, error)) op {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args A
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &args); err != nil {
				return nil, err
			}
		}
		return f(ctx, args)
	}
}

type none struct{}

// A role is one of the processes. Close ends all that it started.
type role interface {
	ops() map[string]op
	io.Closer
}

func newRole(name string) (role, error) {
	switch name {
	case "replica":
		return newReplica(), nil
	case "agents":
		return newAgents(), nil
	}
	return nil, fmt.Errorf("scale: there is no role %q", name)
}

// closeTimeout is how long a role may take to end.
const closeTimeout = 10 * time.Second

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
	if err := raiseFiles(); err != nil {
		return err
	}
	ops := r.ops()
	ops["usage"], ops["profile"], ops["heap"] = on(ownUsage), on(profile), on(heapProfile)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	requests := make(chan request)
	go readRequests(in, requests, cancel)
	w := json.NewEncoder(out)
	for q := range requests {
		if err := w.Encode(answer(ctx, ops, q)); err != nil {
			return fmt.Errorf("scale: %s: %w", name, err)
		}
	}
	return nil
}

// readRequests ends the context when the input ends, even during a request, and
// some time later the process.
func readRequests(in io.Reader, requests chan<- request, cancel func()) {
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
}

func answer(ctx context.Context, ops map[string]op, q request) (a reply) {
	f := ops[q.Op]
	if f == nil {
		return reply{Err: fmt.Sprintf("there is no request %q", q.Op)}
	}
	v, err := f(ctx, q.Args)
	if err == nil {
		a.Value, err = json.Marshal(v)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// profile writes a CPU profile to the file until it is called with none. The
// file ends with the process.
func profile(_ context.Context, path string) (none, error) {
	if path == "" {
		pprof.StopCPUProfile()
		return none{}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return none{}, err
	}
	return none{}, pprof.StartCPUProfile(f)
}

// heapProfile writes a profile of the memory in use to the file.
func heapProfile(_ context.Context, path string) (none, error) {
	f, err := os.Create(path)
	if err != nil {
		return none{}, err
	}
	return none{}, errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
