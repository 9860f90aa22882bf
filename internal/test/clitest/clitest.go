// Package clitest runs the examples in their tests.
package clitest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// Program is a program that runs beside the test.
type Program struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // the program's, once done is closed

	mu      sync.Mutex // guards the fields below
	text    bytes.Buffer
	written chan struct{} // closed and replaced by each Write
}

// Start runs a program until the test ends. Both its outputs go to one text.
func Start(t testing.TB, run func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error, stdin io.Reader, args ...string) *Program {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Program{t: t, cancel: cancel, done: make(chan struct{}), written: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = run(ctx, args, stdin, p, p)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("the output of %q:\n%s", args, p.Text())
		}
	})
	return p
}

// Stop ends the program, as a signal does, and returns its error.
func (p *Program) Stop() error {
	p.cancel()
	<-p.done
	return p.err
}

// Wait waits for the program's end, and returns its error.
func (p *Program) Wait() error {
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.t.Fatal("the program does not end")
	}
	return p.err
}

// Write implements io.Writer.
func (p *Program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.written)
	p.written = make(chan struct{})
	return p.text.Write(b)
}

// Text returns the output so far.
func (p *Program) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// Await waits for a match in the output, and returns its last group.
func (p *Program) Await(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		found, written := re.FindStringSubmatch(p.text.String()), p.written
		p.mu.Unlock()
		if found != nil {
			return found[len(found)-1]
		}
		select {
		case <-written:
		case <-p.done:
			p.t.Fatalf("no %s in the output, and the program ended: %v", pattern, p.err)
		case <-late:
			p.t.Fatalf("no %s in the output", pattern)
		}
	}
}

// Get returns the status and the body of a page. It keeps no connection.
func Get(t testing.TB, url string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

var family = regexp.MustCompile(`(?m)^# TYPE (causeway_\w+) `)

// CheckMetrics reads a program's page of metrics. It has each series of want, as in
// name{labels} value, and those of a Go process, and metrics.md lists each family of ours.
func CheckMetrics(t testing.TB, url string, want ...string) {
	t.Helper()
	list, err := os.ReadFile("../../../../tunnel/prometheus/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	status, page := Get(t, url)
	families := family.FindAllStringSubmatch(page, -1)
	if status != http.StatusOK || len(families) == 0 {
		t.Fatalf("got %d of %s:\n%s", status, url, page)
	}
	for _, f := range families {
		if !bytes.Contains(list, []byte("| `"+f[1]+"` |")) {
			t.Errorf("metrics.md does not list %s", f[1])
		}
	}
	for _, series := range append(want, "go_goroutines ", "process_open_fds ") {
		if !strings.Contains("\n"+page, "\n"+series) {
			t.Errorf("the metrics lack %s", series)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// ReadManifest parses a manifest strictly into objects, by kind/name or kind. The manifest
// must have each once, and no other.
func ReadManifest(t testing.TB, file string, objects map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(err)
		}
		key := head.Kind + "/" + head.Metadata.Name
		if objects[key] == nil {
			key = head.Kind
		}
		if objects[key] == nil {
			t.Fatalf("got a second or unknown %q", head.Kind)
		}
		if err := yaml.UnmarshalStrict(document, objects[key]); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		delete(objects, key)
	}
	if len(objects) > 0 {
		t.Fatalf("the manifest lacks %d kinds", len(objects))
	}
}
