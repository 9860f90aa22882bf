package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

const (
	attemptTimeout = 15 * time.Second
	directTimeout  = 2 * time.Second // what is not there may not answer
)

// An attempt is one try of a route.
type attempt struct {
	route  string
	times  map[string]time.Duration // by column
	answer string
	err    error
}

// try does what a controller does: it asks the API server with what the kubeconfig Secret
// holds.
func (d *demo) try(ctx context.Context, r route) attempt {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()

	a := attempt{route: r.name}
	client, err := d.newClient(r)
	if err != nil {
		a.err = err
		return a
	}
	defer client.Close()
	p := newPhases()
	clientset, err := kubernetes.NewForConfig(client.Config())
	if err == nil {
		a.answer, err = ask(p.observe(ctx), clientset, p)
	}
	a.err, a.times = err, p.durations()
	return a
}

// newClient builds the kubeconfig and its Secret, and returns a client of what the
// Secret holds.
func (d *demo) newClient(r route) (*connect.Client, error) {
	spec := d.spec
	spec.Route = r.route
	config, err := spec.Build()
	if err != nil {
		return nil, err
	}
	secret, err := kubeconfig.Secret(spec.Name, "default", config, nil)
	if err != nil {
		return nil, err
	}
	if config, err = kubeconfig.FromSecret(secret); err != nil {
		return nil, err
	}
	return connect.New(config, r.options)
}

// ask gets an answer from the API server that shows people that it was reached.
func ask(ctx context.Context, clientset kubernetes.Interface, p *phases) (string, error) {
	rest := clientset.Discovery().RESTClient()
	ready, err := rest.Get().AbsPath("/readyz").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	version, err := clientset.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	began := time.Now()
	list, err := clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	p.add("list", time.Since(began))
	watched, err := watchOne(ctx, clientset)
	if err != nil {
		return "", fmt.Errorf("watch: %w", err)
	}
	return fmt.Sprintf("%s, readyz %s, %d namespaces, watch saw %q", version.GitVersion, ready, len(list.Items), watched), nil
}

// watchOne returns the name of the first namespace that a watch tells of.
func watchOne(ctx context.Context, clientset kubernetes.Interface) (string, error) {
	w, err := clientset.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		ns, ok := e.Object.(*corev1.Namespace)
		if !ok {
			return "", fmt.Errorf("got an event %q that is no namespace", e.Type)
		}
		return ns.Name, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// phases collects how long each column of the table took. The first request
// makes the connection; the others use it.
type phases struct {
	mu    sync.Mutex // guards the fields below
	times map[string]time.Duration
	began time.Time // when the API server's TLS handshake began
}

func newPhases() *phases { return &phases{times: map[string]time.Duration{}} }

func (p *phases) add(column string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times[column] += d
}

func (p *phases) durations() map[string]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.times
}

// observe returns a context with hooks for the dial and for the TLS handshake
// with the API server.
func (p *phases) observe(ctx context.Context) context.Context {
	columns := map[dialer.Phase]string{
		dialer.PhaseDNS:     "dns",
		dialer.PhaseTCP:     "tcp",
		dialer.PhaseTLS:     "proxy tls",
		dialer.PhaseConnect: "connect",
		dialer.PhaseAuth:    "connect",
	}
	ctx = dialer.WithTrace(ctx, &dialer.Trace{
		Done: func(e dialer.Event) { p.add(columns[e.Phase], e.Duration) },
	})
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.began = time.Now()
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if err == nil {
				p.times["tls"] = time.Since(p.began)
			}
		},
	})
}

// shortError is the dialer's own error if there is one: client-go puts the
// request before it.
func shortError(err error) error {
	if e, ok := errors.AsType[*dialer.Error](err); ok {
		return e
	}
	return err
}
