package logs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

const (
	sampleTime = time.Minute
	maxKinds   = 1000 // that are told apart
	maxOfOne   = 50   // of one source, or of the ServiceAccounts of one namespace
)

// Sampler writes the first lines of each kind of event in a minute, and at the end of
// the minute how many it has left out. Whoever causes the events can't fill the log.
type Sampler struct {
	Log *slog.Logger
	// PerKind is how many lines a kind has in a minute. Zero means 1.
	PerKind int
	// Lines bounds the lines of all kinds together. If nil, they are not bounded.
	Lines *rate.Limiter

	mu    sync.Mutex // guards the fields below
	kinds map[kind]*count
	rest  int       // events of kinds that have no line at the moment
	told  time.Time // when rest was written last
}

// kind are the events that are summed up together.
type kind struct{ event, source, reason string }

type count struct {
	level   slog.Level
	since   time.Time
	written int
	left    int // events without a line
}

// Write writes a line with the text event and args, unless there were enough of its kind:
// those with the same event, source and reason.
func (s *Sampler) Write(level slog.Level, event, source, reason string, args ...any) {
	ctx := context.Background()
	if s.Log.Enabled(ctx, level) && s.admit(kind{event, source, reason}, level, time.Now()) {
		s.Log.Log(ctx, level, event, args...)
	}
}

// admit reports whether an event has a line, and else counts it.
func (s *Sampler) admit(k kind, level slog.Level, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.kinds[k]
	switch {
	case c != nil && (c.left > 0 || c.written >= max(s.PerKind, 1) || !s.mayWrite(now)):
		c.left++
		return false
	case c == nil && (len(s.kinds) >= maxKinds || k.source != "" && s.kindsBeside(k) >= maxOfOne || !s.mayWrite(now)):
		s.rest++ // of this kind the next event may have a line
		return false
	case c == nil:
		if s.kinds == nil {
			s.kinds = map[kind]*count{}
		}
		c = &count{level: level, since: now}
		s.kinds[k] = c
	}
	c.written++
	return true
}

// kindsBeside returns how many kinds share the lines of k's source.
func (s *Sampler) kindsBeside(k kind) (n int) {
	shared := sharing(k.source)
	for other := range s.kinds {
		if sharing(other.source) == shared {
			n++
		}
	}
	return n
}

// sharing returns whose lines a source takes: its own, but a ServiceAccount those of its namespace.
// A person with rights there can make any number of ServiceAccounts.
func sharing(source string) string {
	if namespace, ok := strings.CutPrefix(source, "system:serviceaccount:"); ok {
		source, _, _ = strings.Cut(namespace, ":")
	}
	return source
}

func (s *Sampler) mayWrite(now time.Time) bool { return s.Lines == nil || s.Lines.AllowN(now, 1) }

// Start has the sums written until stop is called, which writes the last ones.
func (s *Sampler) Start() (stop func()) { return cli.Go(context.Background(), s.run) }

func (s *Sampler) run(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			s.sumUp(now.Add(-sampleTime), now)
		case <-ctx.Done():
			now := time.Now()
			s.sumUp(now, now)
			return
		}
	}
}

// sumUp writes the sums of the kinds that began before a time.
func (s *Sampler) sumUp(before, now time.Time) {
	sums, rest := s.takeSums(before, now)
	for k, c := range sums {
		s.Log.Log(context.Background(), c.level, "more of the same", "event", k.event, "source", k.source, "reason", k.reason,
			"count", c.left, "since", c.since.UTC().Truncate(time.Millisecond))
	}
	if rest > 0 {
		s.Log.Warn("more events than lines", "count", rest)
	}
}

func (s *Sampler) takeSums(before, now time.Time) (sums map[kind]*count, rest int) {
	sums = map[kind]*count{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest > 0 && !s.told.After(before) && s.mayWrite(now) {
		rest, s.rest, s.told = s.rest, 0, now
	}
	for k, c := range s.kinds {
		switch {
		case c.since.After(before):
			continue
		case c.left > 0 && s.mayWrite(now):
			sums[k] = c
		default:
			s.rest += c.left
		}
		delete(s.kinds, k)
	}
	return sums, rest
}
