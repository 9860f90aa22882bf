package logs

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// Who names thousands of clusters leaves lines for others. A tenant makes any number of
// ServiceAccounts in a namespace.
func TestSamplerShares(t *testing.T) {
	var out strings.Builder
	s := &Sampler{Log: slog.New(slog.NewTextHandler(&out, nil)), Lines: rate.NewLimiter(0, 101)}
	for i := range 200 {
		s.Write(slog.LevelWarn, "door failed", "bob", fmt.Sprint("dial tenant/", i), "client", "bob")
		s.Write(slog.LevelWarn, "door failed", fmt.Sprint("system:serviceaccount:tenant:", i), "dial", "client", "tenant")
	}
	s.Write(slog.LevelWarn, "door failed", "ann", "dial org/prod", "client", "ann")
	for text, want := range map[string]int{"client=bob": 50, "client=tenant": 50, "client=ann": 1} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("got %d lines with %s, want %d", got, text, want)
		}
	}
}

// A stranger with thousands of addresses takes the lines of that moment, and not those of a
// minute: who comes after it has one.
func TestSamplerAfterFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &Sampler{Log: slog.New(slog.NewTextHandler(&out, nil)), Lines: rate.NewLimiter(rate.Every(time.Minute/100), 8)}
		stop := s.Start()
		flood := func(source string) {
			for i := range 2000 {
				s.Write(slog.LevelWarn, "refused", fmt.Sprint(source, i), "garbage", "remote", source)
			}
		}
		flood("many")
		for i := range 3 {
			time.Sleep(3 * time.Second)
			s.Write(slog.LevelWarn, "door failed", fmt.Sprint("host", i), "407", "remote", "host")
		}
		time.Sleep(10 * time.Second)
		flood("again")
		stop()
		for text, want := range map[string]int{"remote=many": 8, "remote=host": 3, "remote=again": 8} {
			if got := strings.Count(out.String(), text); got != want {
				t.Errorf("got %d lines with %s, want %d:\n%s", got, text, want, &out)
			}
		}
		if want := `msg="more events than lines" count=1992`; !strings.Contains(out.String(), want) {
			t.Errorf("got no %s in\n%s", want, &out)
		}
	})
}
