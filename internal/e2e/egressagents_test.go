package e2e

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// Of two agents one is killed, that which carries a log that is followed, while
// 50 logs a second are read. What it carried ends; all else goes on through the
// other.
func TestEgressAgentKilled(t *testing.T) {
	b := sharedBed(t)
	h, agents := egressTunnel(t, b)
	g := egressGateway(t, h, &dialedLog{})
	l, transport := egressSocket(t, b, g)
	serveGateway(t, g, l)
	k := startEgressKube(t, b, "egress-killed", transport)
	c := egressCell(t, b, k)
	rest := k.Config()
	rest.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	clients, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	logs := func(follow bool) (io.ReadCloser, error) {
		return clients.CoreV1().Pods(c.namespace).GetLogs("pod", &corev1.PodLogOptions{Follow: follow}).Stream(t.Context())
	}
	followed, err := logs(true)
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Close()
	if _, err := io.ReadFull(followed, make([]byte, len("line 1\n"))); err != nil {
		t.Fatal(err)
	}
	carrier := carrying(t, h)
	i := slices.IndexFunc(agents, func(a *bed.Running) bool { return strings.Contains(a.Stdout(), "(agent "+carrier+")") })
	if i < 0 {
		t.Fatalf("no role is agent %s", carrier)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, followed)
		ended <- err
	}()
	var killed time.Time // when it has ended
	done := make(chan struct{})
	time.AfterFunc(2*time.Second, func() {
		defer close(done)
		agents[i].Stop()
		killed = time.Now()
	})
	reads := readOften(10*time.Second, 50, func() error {
		one, err := logs(false)
		if err != nil {
			return err
		}
		defer one.Close()
		_, err = io.Copy(io.Discard, one)
		return err
	})
	<-done
	// kube-apiserver ends a log in order, whatever ended the one it had.
	t.Logf("the followed log ended with: %v", next(t, ended, slack, "the followed log's end"))
	var before, after, bad int
	for _, r := range reads {
		switch {
		case r.err != nil && r.began.After(killed.Add(time.Second)):
			t.Errorf("%v after the agent's end: %v", r.began.Sub(killed), r.err)
		case r.err != nil:
			bad++
		case r.began.After(killed):
			after++
		default:
			before++
		}
	}
	t.Logf("logs read before the agent's end: %d, after it: %d; cut by it: %d", before, after, bad)
	if before == 0 || after < 100 {
		t.Errorf("%d and %d logs were read, want some before and 100 after", before, after)
	}
	if err := kubectlLogs(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// carrying returns the agent that has a stream.
func carrying(t *testing.T, h *hub) string {
	t.Helper()
	var agents []string
	for _, s := range h.Status().Clusters[0].Sessions {
		if s.Streams > 0 {
			agents = append(agents, s.Agent)
		}
	}
	if len(agents) != 1 {
		t.Fatalf("agents %q have streams, want one", agents)
	}
	return agents[0]
}

// result is what came of a read.
type result struct {
	began time.Time
	err   error
}

// readOften calls read so many times a second, without waiting for its return,
// and returns when all calls have.
func readOften(d time.Duration, perSecond int, read func() error) (list []result) {
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	results := make(chan result)
	end := time.After(d)
	for under := 0; end != nil || under > 0; {
		select {
		case began := <-ticker.C:
			under++
			go func() { results <- result{began, read()} }()
		case r := <-results:
			under--
			list = append(list, r)
		case <-end:
			ticker.Stop()
			end = nil
		}
	}
	return list
}
