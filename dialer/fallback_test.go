package dialer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
)

// works is a Dialer that connects, to nobody.
func works(context.Context, string, string) (net.Conn, error) {
	conn, far := net.Pipe()
	far.Close()
	return conn, nil
}

func TestFallback(t *testing.T) {
	ok := dialer.Func(works)
	for _, tt := range []struct {
		name          string
		first, second dialer.Dialer
		used          []string
		errs          []error // nil: it connects
	}{
		{"the first works", ok, way("second"), nil, nil},
		{"the second does", way("first"), ok, []string{"tcp api:1 first"}, nil},
		{"none does", way("first"), way("second"), []string{"tcp api:1 first"}, []error{way("first"), way("second")}},
		{"no reason", way("no"), ok, nil, []error{way("no")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var used []string
			f := &dialer.Fallback{
				First: tt.first, Second: tt.second,
				When: func(err error) bool { return !errors.Is(err, way("no")) },
				Used: func(network, address string, err error) { used = append(used, network+" "+address+" "+err.Error()) },
			}
			for i := range uint64(2) { // it has no memory
				used = nil
				conn, err := f.DialContext(t.Context(), "tcp", "api:1")
				if conn != nil {
					conn.Close()
				}
				if (err == nil) != (tt.errs == nil) {
					t.Fatalf("got %v, want %v", err, tt.errs)
				}
				for _, want := range tt.errs {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want %v in it", err, want)
					}
				}
				if diff := cmp.Diff(tt.used, used); diff != "" {
					t.Errorf("used (-want +got)\n%s", diff)
				}
				if want := uint64(len(tt.used)) * (i + 1); f.Count() != want {
					t.Errorf("count: got %d, want %d", f.Count(), want)
				}
			}
		})
	}
}

// A first way that never answers leaves time for the second.
func TestFallbackTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		f := &dialer.Fallback{
			First:  dialer.Func(func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }),
			Second: dialer.Func(works),
			When:   func(error) bool { return true },
			Used:   func(string, string, error) {},
		}
		conn, err := f.DialContext(ctx, "tcp", "api:1")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %v, want half of ten seconds", took)
		}
	})
}

// After the end of the context nothing goes another way.
func TestFallbackCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &dialer.Fallback{
		First:  dialer.Func(func(context.Context, string, string) (net.Conn, error) { cancel(); return nil, way("first") }),
		Second: way("second"),
		When:   func(error) bool { return true },
		Used:   func(string, string, error) { t.Error("used") },
	}
	if _, err := f.DialContext(ctx, "tcp", "api:1"); !errors.Is(err, context.Canceled) || f.Count() != 0 {
		t.Errorf("got %v and %d, want that it was cancelled", err, f.Count())
	}
}

func TestFallbackErrors(t *testing.T) {
	whole := func() *dialer.Fallback {
		return &dialer.Fallback{First: way("a"), Second: way("b"), When: func(error) bool { return false }, Used: func(string, string, error) {}}
	}
	for field, change := range map[string]func(*dialer.Fallback){
		"First":  func(f *dialer.Fallback) { f.First = nil },
		"Second": func(f *dialer.Fallback) { f.Second = (*dialer.SOCKS5)(nil) },
		"When":   func(f *dialer.Fallback) { f.When = nil },
		"Used":   func(f *dialer.Fallback) { f.Used = nil },
	} {
		f := whole()
		change(f)
		_, err := f.DialContext(t.Context(), "tcp", "api:1")
		var e *dialer.Error
		if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig || !strings.Contains(err.Error(), "field "+field+" is required") {
			t.Errorf("got %v, want that %s is required", err, field)
		}
	}
}
