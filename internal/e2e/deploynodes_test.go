package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// workers do for the Pods of a cluster what a scheduler and the kubelets of its nodes do:
// they bind, run, probe, restart and end them. The Pods come from
// kube-controller-manager's own controllers.
type workers struct {
	d       *deploying
	t       *testing.T
	nodes   []string
	running sync.WaitGroup
	cancel  context.CancelFunc
	manager *bed.Running

	mu   sync.Mutex // guards the field below
	pods map[string]*worked
}

// worked is a Pod on a node.
type worked struct {
	*pod
	node  string
	ready bool // as the Pod's status says
	ended bool // it is deleted: not to be restarted
}

// startWorkers starts the controllers and the nodes, until stop.
func (d *deploying) startWorkers(t *testing.T, nodes ...string) *workers {
	t.Helper()
	for _, name := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		d.create(t, node)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := d.admin.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	w := &workers{d: d, t: t, nodes: nodes, pods: map[string]*worked{}}
	var err error
	w.manager, err = d.Node.Start(t.Context(), bed.Command{Argv: []string{filepath.Join(os.Getenv(bed.BinEnv), "kube-controller-manager"),
		"--kubeconfig=" + d.path("admin"), "--leader-elect=false", "--secure-port=0", "--controllers=deployment-controller,replicaset-controller,disruption-controller,endpointslice-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	w.running.Go(func() { w.watchPods(ctx) })
	return w
}

// stop ends the controllers and the nodes, and not the programs of their Pods.
func (w *workers) stop() {
	w.manager.Stop()
	if w.t.Failed() {
		w.t.Logf("kube-controller-manager: %s", w.manager.Stderr())
	}
	w.cancel()
	w.running.Wait()
}

func (w *workers) watchPods(ctx context.Context) {
	events, err := w.d.admin.Watch(ctx, &corev1.PodList{})
	if err != nil {
		w.t.Error(err)
		return
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		object, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type == watch.Deleted || !slices.Contains([]string{"tunnel-agent", serverBase}, object.Labels[programLabel]) {
			continue // other programs are not here
		}
		p := w.find(object.Name)
		switch {
		case p != nil && object.DeletionTimestamp != nil:
			w.endPod(ctx, p)
		case p == nil && object.Spec.NodeName == "":
			w.bindPod(ctx, object)
		case p == nil && object.DeletionTimestamp == nil:
			w.runPod(ctx, object)
		}
	}
}

func (w *workers) find(name string) *worked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[name]
}

const programLabel = "app.kubernetes.io/name"

// ready are the Pods of a program that a Service leads to.
func (w *workers) ready(program string) (pods []*worked) {
	for _, p := range w.all() {
		w.mu.Lock()
		if p.ready && p.object.Labels[programLabel] == program {
			pods = append(pods, p)
		}
		w.mu.Unlock()
	}
	return pods
}

// all are the Pods that are not deleted.
func (w *workers) all() (pods []*worked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if !p.ended {
			pods = append(pods, p)
		}
	}
	return pods
}

// bindPod binds the Pod to the node with the fewest, unless it is cordoned.
func (w *workers) bindPod(ctx context.Context, object *corev1.Pod) {
	counts := map[string]int{}
	for _, p := range w.all() {
		counts[p.node]++
	}
	best := ""
	for _, name := range w.nodes {
		node := &corev1.Node{}
		if err := w.d.admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			w.fault(ctx, err)
			return
		}
		if !node.Spec.Unschedulable && (best == "" || counts[name] < counts[best]) {
			best = name
		}
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: object.Name, Namespace: object.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: best}}
	w.fault(ctx, w.d.admin.SubResource("binding").Create(ctx, object, binding))
}

// fault reports an error, unless the test has ended or the Pod is gone.
func (w *workers) fault(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		w.t.Error(err)
	}
}

// runPod starts the Pod's program, and keeps it running.
func (w *workers) runPod(ctx context.Context, object *corev1.Pod) {
	p := &worked{pod: w.d.prepare(w.t, object), node: object.Spec.NodeName}
	p.run(w.t)
	w.mu.Lock()
	w.pods[object.Name] = p
	w.mu.Unlock()
	w.running.Go(func() { w.keepPod(ctx, p) })
}

// keepPod reports the state of the Pod and restarts its program, as a kubelet does the
// first time: at once.
func (w *workers) keepPod(ctx context.Context, p *worked) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	failures := int32(0)
	for ready := corev1.ConditionStatus(""); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if w.isEnded(p) {
			return
		}
		if p.running.Ended() != nil {
			w.restart(p)
		}
		now := p.readiness(ctx)
		if failures++; now == corev1.ConditionTrue {
			failures = 0
		}
		// A busy machine fails one probe, and a kubelet waits for more.
		if ready == corev1.ConditionTrue && failures > 0 && failures < p.object.Spec.Containers[0].ReadinessProbe.FailureThreshold {
			continue
		}
		if now != ready {
			w.fault(ctx, w.setStatus(ctx, p, now))
			ready = now
			w.mu.Lock()
			p.ready = now == corev1.ConditionTrue
			w.mu.Unlock()
		}
	}
}

func (p *worked) readiness(ctx context.Context) corev1.ConditionStatus {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	get := p.object.Spec.Containers[0].ReadinessProbe.HTTPGet
	if p.probe(ctx, get.Path, get.Port) != nil {
		return corev1.ConditionFalse
	}
	return corev1.ConditionTrue
}

func (w *workers) isEnded(p *worked) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.ended
}

func (w *workers) restart(p *worked) {
	running, err := p.host.StartContainer(w.d.t.Context(), p.container)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.running = running
}

// signal sends the Pod's program a signal.
func (w *workers) signal(t *testing.T, p *worked, s syscall.Signal) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := p.running.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// log returns what the Pod's program has written since its last start.
func (w *workers) log(p *worked) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.running.Stderr()
}

func (w *workers) setStatus(ctx context.Context, p *worked, ready corev1.ConditionStatus) error {
	now := &corev1.Pod{}
	if err := w.d.admin.Get(ctx, client.ObjectKeyFromObject(p.object), now); err != nil {
		return err
	}
	patch := client.MergeFrom(now.DeepCopy())
	now.Status.Phase, now.Status.PodIP = corev1.PodRunning, p.ip
	now.Status.PodIPs = []corev1.PodIP{{IP: p.ip}}
	now.Status.Conditions = nil
	for _, name := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		now.Status.Conditions = append(now.Status.Conditions, corev1.PodCondition{Type: name, Status: ready, LastTransitionTime: metav1.Now()})
	}
	return w.d.admin.Status().Patch(ctx, now, patch)
}

// endPod tells the program to end, after preStop, and removes the Pod when it has.
func (w *workers) endPod(ctx context.Context, p *worked) {
	w.mu.Lock()
	again := p.ended
	p.ended = true
	running := p.running
	w.mu.Unlock()
	if again {
		return
	}
	w.running.Go(func() {
		if l := p.object.Spec.Containers[0].Lifecycle; l != nil {
			select {
			case <-time.After(time.Duration(l.PreStop.Sleep.Seconds) * time.Second):
			case <-ctx.Done():
				return
			}
		}
		if err := running.Signal(syscall.SIGTERM); err != nil {
			w.t.Error(err)
		}
		if err := running.Wait(); err != nil && ctx.Err() == nil {
			w.t.Errorf("%s: %v", p.name, err)
		}
		w.fault(ctx, w.d.admin.Delete(ctx, p.object, client.GracePeriodSeconds(0)))
	})
}
