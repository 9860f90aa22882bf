package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
)

// The file of the invitation says which proxy a connection goes through, at the time of
// the connection.
func TestFileProxy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "invitation.env")
	var log strings.Builder
	environment := errors.New("by the environment")
	p := &fileProxy{file: file, log: slog.New(slog.NewTextHandler(&log, nil)),
		environment: func() (dialer.Dialer, error) {
			return dialer.Func(func(context.Context, string, string) (net.Conn, error) { return nil, environment }), nil
		}}
	const one, two = "http://user:canary@127.0.0.1:1", "http://user:canary2@127.0.0.1:2"
	for _, step := range []struct {
		name, text string // of the file; "" deletes it
		address    string
		want       string // of the error
		proxy      string // that it names; "": none
	}{
		{"no file yet", "", "192.0.2.1:443", "by the environment", ""},
		{"a proxy", "# comment\nCAUSEWAY_TOKEN=x\nCAUSEWAY_PROXY=" + one + "\n", "192.0.2.1:443", "connect", "127.0.0.1:1"},
		{"port 80", "CAUSEWAY_PROXY=" + one, "192.0.2.1:80", "connect", "127.0.0.1:1"},
		{"another proxy", "CAUSEWAY_PROXY=\"" + two + "\"\r\n", "192.0.2.1:443", "connect", "127.0.0.1:2"},
		{"the file is deleted", "", "192.0.2.1:443", "connect", "127.0.0.1:2"},
		{"a list", "CAUSEWAY_PROXY=" + two + "\nCAUSEWAY_NO_PROXY=svc,127.0.0.1\n", "192.0.2.1:443", "connect", "127.0.0.1:2"},
		{"an address of the list", "CAUSEWAY_PROXY=" + two + "\nCAUSEWAY_NO_PROXY=svc,127.0.0.1\n", "127.0.0.1:3", "connect", ""},
		{"an empty file", "\n", "192.0.2.1:443", "connect", "127.0.0.1:2"},
		{"an invitation without it", "CAUSEWAY_TOKEN=x\n", "192.0.2.1:443", "connect", "127.0.0.1:2"},
		{"no environment file", "CAUSEWAY_PROXY: " + one, "192.0.2.1:443", "--invitation: line 1: want NAME=value", ""},
		{"spaces", "export  CAUSEWAY_PROXY =" + one, "192.0.2.1:443", "connect", "127.0.0.1:1"},
		{"not a URL", "CAUSEWAY_PROXY=http://user:canary/3@127.0.0.1:1\n", "192.0.2.1:443", "CAUSEWAY_PROXY in " + file, ""},
		{"direct", "CAUSEWAY_PROXY=direct\n", "127.0.0.1:3", "connect", ""},
		{"none any more", "CAUSEWAY_TOKEN=x\n", "192.0.2.1:443", "by the environment", ""},
	} {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if step.text != "" {
			if err := os.WriteFile(file, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := p.DialContext(t.Context(), "tcp", step.address)
		if err == nil || !strings.Contains(err.Error(), step.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v, want %q", step.name, err, step.want)
		}
		through := ""
		if e, ok := errors.AsType[*dialer.Error](err); ok && e.Proxy != "" {
			through = strings.TrimPrefix(e.Proxy, "http://")
		}
		if through != step.proxy {
			t.Errorf("%s: got the proxy %q in %v, want %q", step.name, through, err, step.proxy)
		}
	}
	for text, want := range map[string]int{"canary": 0, "the invitation names the proxy": 5, "there is no file": 1, "names no proxy any more": 2} {
		if got := strings.Count(log.String(), text); got != want {
			t.Errorf("got %q %d times, want %d, in the log\n%s", text, got, want, &log)
		}
	}
}

// TestUnusableEnvironment: an environment that can't be used is no trouble of an agent whose flag
// or invitation says where the proxy is.
func TestUnusableEnvironment(t *testing.T) {
	t.Setenv("ALL_PROXY", "socks://127.0.0.1:1")
	file := filepath.Join(t.TempDir(), "invitation.env")
	for _, tt := range []struct {
		name  string
		flags flags
		text  string // of the file
		want  string
	}{
		{"a proxy in the file", flags{invitation: file}, "CAUSEWAY_PROXY=http://127.0.0.1:2", "through http://127.0.0.1:2"},
		{"none in the file", flags{invitation: file}, "CAUSEWAY_PROXY=direct", "dial tcp 127.0.0.1:3"},
		{"a flag", flags{proxy: "socks5h://127.0.0.1:4"}, "", "through socks5://127.0.0.1:4"},
		{"a flag that says none", flags{proxy: "direct"}, "", "dial tcp 127.0.0.1:3"},
		{"nothing else", flags{invitation: file}, "CAUSEWAY_TOKEN=x", "ALL_PROXY"},
		{"no file", flags{}, "", "ALL_PROXY"},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := tt.flags.newDialer(slog.New(slog.DiscardHandler))
		if err == nil {
			_, err = d.DialContext(t.Context(), "tcp", "127.0.0.1:3")
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
