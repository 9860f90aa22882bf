package probe

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// readiness adds PhaseReady. A 403 says that we are known, and may not look.
func (p *probing) readiness(took time.Duration, a *apiAnswer, err error) bool {
	if err != nil {
		return p.fail(PhaseReady, took, p.requestFinding(err), err)
	}
	step := Step{Phase: PhaseReady, Took: took}
	switch {
	case a.status == http.StatusOK:
		step.Detail = "ok"
	case a.status == http.StatusForbidden:
		step.Detail = "authenticated, but not allowed to read /readyz (403)"
	case a.status == http.StatusUnauthorized:
		step.Detail = "authenticated, but /readyz is kept closed (401)"
	case a.status == http.StatusNotFound:
		step.Detail = "the API server has no /readyz (404)"
	default:
		return p.refused(PhaseReady, took, a, notReady(a))
	}
	return p.add(step)
}

// notReady names the checks that fail, of the answer to /readyz?verbose.
func notReady(a *apiAnswer) finding {
	var failing []string
	for line := range bytes.Lines(a.body) {
		if check, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("[-]")); ok {
			name, _, _ := bytes.Cut(check, []byte(" "))
			failing = append(failing, string(name))
		}
	}
	if len(failing) == 0 {
		return finding{fmt.Sprintf("the API server is not ready: it answers %d", a.status), "Look at the control plane: the API server's log says why."}
	}
	f := finding{"the API server is not ready: " + strings.Join(failing, ", "), "Look at the control plane: the API server's log says why."}
	for _, name := range failing {
		if strings.HasPrefix(name, "etcd") {
			f.advice = "Look at etcd first: the API server can't reach it, or it has lost its quorum."
		}
	}
	return f
}
