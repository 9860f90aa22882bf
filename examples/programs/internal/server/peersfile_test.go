package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The replicas of a file may change while the server runs; a wrong address changes nothing.
func TestPeersFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peers")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("192.0.2.1")
	if _, err := openPeers(file); err == nil || !strings.Contains(err.Error(), "--peers: "+file+": address 1: it has no port") {
		t.Errorf("got %v of an address without a port", err)
	}
	write("# two\n192.0.2.1:7\n192.0.2.2:7\n")
	f, err := openPeers(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	sets, done := make(chan []string, 10), make(chan error, 1)
	go func() { done <- f.Watch(ctx, func(addresses []string) { sets <- addresses }) }()
	var log strings.Builder
	check := func() { f.check(slog.New(slog.NewTextHandler(&log, nil))) }
	if got, want := <-sets, []string{"192.0.2.1:7", "192.0.2.2:7"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	check()
	write("192.0.2.3:7\n192.0.2.4")
	check()
	write("192.0.2.3:7")
	check()
	if got, want := <-sets, []string{"192.0.2.3:7"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	cancel()
	<-done
	for _, want := range []string{`level=WARN msg="addresses of peers: those before stay" error="--peers: ` + file + ": address 2", `level=INFO msg="addresses of peers" file=` + file} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("got\n%s\nwant one line with %s", &log, want)
		}
	}
}
