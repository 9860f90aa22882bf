package e2e

import (
	"path/filepath"
	"testing"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// The kubeconfig provider of the last release and this one take turns over the same Clusters, in
// each mode. Cluster API rotates the Secrets before each turn and in it, where nobody goes
// directly by a Secret that a provider wrote.
func TestPreviousProvider(t *testing.T) {
	previous := previousVersion(t)
	modes := []provider.Mode{provider.Own, provider.Decorate, provider.Secondary, provider.Rewrite}
	h := startHammering(t, 0, func(h *hammering, i int) birth {
		mode := modes[i/2%len(modes)] // in both namespaces
		b := birth{noControlPlane: mode == provider.Own, annotations: map[string]string{provider.AnnotationMode: string(mode)}}
		if mode == provider.Rewrite {
			b.annotations[provider.AnnotationProxyURL], b.annotations[provider.AnnotationServer] = provider.Direct, h.doors.gateway
		}
		return b
	})
	defer h.wantRoutes()
	programs := map[string]string{"this": h.deployed.program, "previous": filepath.Join(h.dir, "previous", "causeway")}
	buildPrevious(t, previous, filepath.Dir(programs["previous"]), "./causeway")
	turns := []struct {
		version string
		flag    bool // the route of the first namespace is named, and that of the second one's
		proxy   int  // of the second namespace
	}{
		{"previous", true, 1},
		{"this", true, 1},
		{"this", false, 1}, // all keep their routes
		{"previous", true, 1},
		{"previous", true, 0}, // that this one does not know of
		{"this", false, 0},
		{"this", true, 1},
	}
	for i, turn := range turns {
		h.deployed.program = programs[turn.version]
		if i > 0 {
			h.provider.Stop()
			h.provider = nil // has ended
			h.rotate()
		}
		if h.annotateNamespace(""); turn.flag {
			h.annotateNamespace(h.doors.proxies[turn.proxy])
		}
		h.startProvider(turn.flag)
		h.settleQuietly(turn.version + " program: the Secrets to have their routes")
		h.rotate()
		h.settleQuietly(turn.version + " program: the Secrets to have their routes again")
		t.Logf("turn %d, %+v", i, turn)
	}
	h.wantTruth()
	h.wantRest()
}

// rotate has Cluster API regenerate all Secrets that it made.
func (h *hammering) rotate() {
	for _, c := range h.clusters {
		if !h.owned[c.Name] {
			h.regenerateSecret(c, false)
		}
	}
}

// settleQuietly is settle, with no faults after it.
func (h *hammering) settleQuietly(what string) {
	h.t.Helper()
	h.settle(what)
	h.api.setFaults(false)
}
