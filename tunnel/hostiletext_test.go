package tunnel_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel"
)

// What an agent with a good certificate says of itself, and why a dial failed, prints: in
// the Status, in hooks and in the errors of dials.
func TestAgentTexts(t *testing.T) {
	const hostile = "v1\u009b31m\u0085\u202e\u2066\u200b\x1b]0;x\a\r\n\xff\U000e0041"
	server := &tunnel.Server{}
	b := newBed(t, server)
	long := []byte(hostile + strings.Repeat("é", 200))
	b.rawBy(b.enrolled(), rawMessage(1, uint16(3), uint64(1), uint16(17), long), func(s *rawStream) {
		s.Write(rawMessage(17, uint16(1), uint64(tunnel.CodeRefused), uint16(2), long))
	})
	_, err := b.dial("echo:7")
	var e *tunnel.Error
	if !errors.As(err, &e) || e.Code != tunnel.CodeRefused || !strings.Contains(err.Error(), "v1?31m") {
		t.Errorf("got %v, want the agent's text", err)
	}
	status := server.Status()
	text, _ := json.Marshal(status)
	var texts []string
	for _, c := range status.Clusters {
		for _, s := range c.Sessions {
			if s.Draining { // of the agent that has enrolled
				continue
			}
			texts = append(texts, s.Program)
		}
	}
	for _, f := range status.Failures {
		texts = append(texts, f.Text)
	}
	if len(texts) != 2 {
		t.Fatalf("got %q in %s", texts, text)
	}
	for _, text := range append(texts, err.Error()) {
		if printable.Text(text, 1<<10) != text || len(text) > 400 {
			t.Errorf("got %q, want a line that prints", text)
		}
	}
}

// The text of an Error prints, whatever its cause quotes: a certificate, a proxy, a name.
func TestErrorText(t *testing.T) {
	for _, code := range []tunnel.Code{tunnel.CodeInternal, tunnel.CodeLost, tunnel.CodeConfig, tunnel.CodeBadCertificate} {
		err := &tunnel.Error{Op: "connect", Code: code, Err: errors.New("valid for a\u009b\u202e\n\x1b.test")}
		if text := err.Error(); !strings.HasSuffix(text, "valid for a?? ?.test") {
			t.Errorf("got %q", text)
		}
	}
}
