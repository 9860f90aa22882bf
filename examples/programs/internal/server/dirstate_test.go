package server

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

// An agent gets what there is when it connects, and nothing twice.
func TestPayloads(t *testing.T) {
	dir := t.TempDir()
	st, err := openDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"..", "a/b"} { // of files outside, if taken as they are
		if err := st.setPayload(t.Context(), name, tunnel.Payload{Name: name, Data: []byte("data")}); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v in the state, want one folder", entries, err)
	}
	w, id := newWatcher(&program{state: st}), tunnel.Identity{Cluster: "..", Agent: "a"}
	list, err := w.payloads(t.Context(), id)
	if err != nil || len(list) != 1 || list[0].Name != ".." || string(list[0].Data) != "data" {
		t.Errorf("got %v, %v", list, err)
	}
	if w.notePayloads(id, payloadDigest(list)) {
		t.Error("the agent is to get again what it was handed")
	}
	if !w.notePayloads(id, payloadDigest(nil)) {
		t.Error("the agent is not to get what changed")
	}
	w.forgetOffline(map[tunnel.Identity]bool{id: true})
	if w.notePayloads(id, payloadDigest(nil)) {
		t.Error("an agent that is connected was forgotten")
	}
	w.forgetOffline(nil)
	if len(w.delivered) != 0 {
		t.Error("an agent that has gone was not forgotten")
	}
}

// The authority is one, whoever is first.
func TestStateIsMadeOnce(t *testing.T) {
	st, err := openDir(filepath.Join(t.TempDir(), "new", "state"), 0)
	if err != nil {
		t.Fatal(err)
	}
	pins := make([]string, 8)
	var wg sync.WaitGroup
	for i := range pins {
		wg.Go(func() {
			if a, err := st.loadAuthority(t.Context()); err != nil {
				t.Error(err)
			} else {
				pins[i] = a.Pin()
			}
		})
	}
	wg.Wait()
	if len(slices.Compact(pins)) != 1 {
		t.Errorf("got pins %q, want one", pins)
	}
	info, err := os.Stat(filepath.Join(st.dir, authorityFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", info.Mode(), err)
	}
	entries, err := os.ReadDir(st.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v in the state, want one file", entries, err)
	}
}
