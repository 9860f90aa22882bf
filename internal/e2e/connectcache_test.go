package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

const (
	cacheNamespace = "connect-cache"
	cacheClusters  = 300
	cacheSize      = 40
	cacheWorkers   = 20
)

type cacheInput struct {
	Kubeconfig []byte // by squid
	OtherRoute string // another proxy
	Marker     string // a file that a hostile kubeconfig makes
	TokenFile  string // a file that a hostile kubeconfig sends
}

type cacheAnswer struct {
	Reached map[string]int    // Secrets whose cluster answered, by the proxy that was asked; "": none was
	Failed  map[string]string // the others, by name
	Slowest time.Duration     // of the clusters that answered
	Sockets int               // that are open when nobody uses a Client
	Tunnels int               // that squid made
	Wrong   string            // the error with a wrong password in the Secret
	Proxy   string            // that the same Client uses after the next change
}

// cacheUser is a controller: it has a Cache, and an administrator's clientset.
type cacheUser struct {
	cacheInput
	admin kubernetes.Interface
	cache connect.Cache

	mu     sync.Mutex // guards the answer
	answer cacheAnswer
}

// cacheRole reaches the clusters of hundreds of Secrets of a real API server.
func cacheRole(ctx context.Context, in io.Reader, out io.Writer) error {
	u := &cacheUser{cache: connect.Cache{Size: cacheSize}}
	u.answer.Reached, u.answer.Failed = map[string]int{}, map[string]string{}
	if err := json.NewDecoder(in).Decode(&u.cacheInput); err != nil {
		return fmt.Errorf("connect-cache role: input: %w", err)
	}
	client, err := newClient(u.Kubeconfig, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	config := client.Config()
	config.QPS = -1
	if u.admin, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	defer u.cache.Close()
	if err := u.run(u.trace(ctx)); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(&u.answer)
}

// trace counts the tunnels that squid makes.
func (u *cacheUser) trace(ctx context.Context) context.Context {
	return dialer.WithTrace(ctx, &dialer.Trace{Done: func(e dialer.Event) {
		if e.Phase == dialer.PhaseConnect && e.Err == nil && strings.HasSuffix(e.Proxy, ":3128") {
			u.mu.Lock()
			u.answer.Tunnels++
			u.mu.Unlock()
		}
	}})
}

func (u *cacheUser) run(ctx context.Context) error {
	secrets, stop, err := u.createSecrets(ctx)
	if err != nil {
		return err
	}
	defer stop()
	u.visitAll(ctx, secrets)
	if err := u.changeRoute(ctx); err != nil {
		return err
	}
	u.answer.Sockets, err = openSockets()
	return err
}

// createSecrets makes the Secrets, hostile ones among them, and returns them as the API
// server lists them.
func (u *cacheUser) createSecrets(ctx context.Context) (_ []corev1.Secret, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	silent := proxytest.Serve(l, func(ctx context.Context, _ net.Conn) { <-ctx.Done() })
	values := map[string][]byte{"broken": []byte("clusters: [{name: a, cluster: {"), "empty": nil}
	for i := range cacheClusters {
		values[fmt.Sprintf("good-%03d", i)] = u.Kubeconfig
	}
	for name, change := range map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"silent-proxy": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://" + silent.Addr() },
		"bad-proxy":    func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "ftp://proxy" },
		"exec": func(_ *clientcmdapi.Cluster, a *clientcmdapi.AuthInfo) {
			*a = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: "touch", Args: []string{u.Marker}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}}
		},
		"token-file": func(_ *clientcmdapi.Cluster, a *clientcmdapi.AuthInfo) {
			*a = clientcmdapi.AuthInfo{TokenFile: u.TokenFile}
		},
	} {
		if values[name], err = changedKubeconfig(u.Kubeconfig, change); err != nil {
			return nil, silent.Close, err
		}
	}
	if _, err := u.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cacheNamespace}}, metav1.CreateOptions{}); err != nil {
		return nil, silent.Close, err
	}
	for name, value := range values {
		if _, err := u.admin.CoreV1().Secrets(cacheNamespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kubeconfig.ClusterNameLabel: name}},
			Type:       kubeconfig.SecretType,
			Data:       map[string][]byte{kubeconfig.SecretKey: value},
		}, metav1.CreateOptions{}); err != nil {
			return nil, silent.Close, err
		}
	}
	list, err := u.admin.CoreV1().Secrets(cacheNamespace).List(ctx, metav1.ListOptions{LabelSelector: kubeconfig.ClusterNameLabel})
	if err != nil {
		return nil, silent.Close, err
	}
	return list.Items, silent.Close, nil
}

// changedKubeconfig returns a kubeconfig with another cluster or user.
func changedKubeconfig(value []byte, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) ([]byte, error) {
	config, err := kubeconfig.Load(value)
	if err != nil {
		return nil, err
	}
	current := config.Contexts[config.CurrentContext]
	change(config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo])
	return clientcmd.Write(*config)
}

// visitAll reaches the cluster of each Secret twice, some at a time.
func (u *cacheUser) visitAll(ctx context.Context, secrets []corev1.Secret) {
	var visiting sync.WaitGroup
	turns := make(chan struct{}, cacheWorkers)
	for range 2 {
		for i := range secrets {
			turns <- struct{}{}
			visiting.Go(func() {
				defer func() { <-turns }()
				u.visit(ctx, &secrets[i])
			})
		}
	}
	visiting.Wait()
}

func (u *cacheUser) visit(ctx context.Context, secret *corev1.Secret) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if strings.HasPrefix(secret.Name, "silent") {
		ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
	}
	began := time.Now()
	client, release, err := u.cache.Get(secret)
	if err == nil {
		defer release()
		err = askVersion(ctx, client)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.answer.Failed[secret.Name] = err.Error()
		return
	}
	u.answer.Reached[secret.Name]++
	u.answer.Slowest = max(u.answer.Slowest, time.Since(began))
}

// askVersion needs a valid user: everybody may read /version, so it reads a namespace.
func askVersion(ctx context.Context, client *connect.Client) error {
	clientset, err := kubernetes.NewForConfig(client.Config())
	if err != nil {
		return err
	}
	_, err = clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	return err
}

// changeRoute changes the route in a Secret while its Client is in use: first to a
// password that squid refuses, then to another proxy.
func (u *cacheUser) changeRoute(ctx context.Context) error {
	secrets := u.admin.CoreV1().Secrets(cacheNamespace)
	secret, err := secrets.Get(ctx, "good-000", metav1.GetOptions{})
	if err != nil {
		return err
	}
	client, release, err := u.cache.Get(secret)
	if err != nil {
		return err
	}
	defer release()
	if err := askVersion(ctx, client); err != nil {
		return err
	}
	change := func(route string) (*connect.Client, error) {
		secret.Data[kubeconfig.SecretKey], err = changedKubeconfig(u.Kubeconfig, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = route })
		if err != nil {
			return nil, err
		}
		if secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
		changed, release, err := u.cache.Get(secret)
		if err == nil {
			release()
		}
		return changed, err
	}
	config, err := kubeconfig.Load(u.Kubeconfig)
	if err != nil {
		return err
	}
	wrong, err := url.Parse(config.Clusters[config.Contexts[config.CurrentContext].Cluster].ProxyURL)
	if err != nil {
		return err
	}
	wrong.User = url.UserPassword(bed.ProxyUser, "wrong")
	if _, err := change(wrong.String()); err != nil {
		return err
	}
	if err := askVersion(ctx, client); err != nil {
		u.answer.Wrong = err.Error()
	}
	same, err := change(u.OtherRoute)
	if err != nil || same != client {
		return errors.Join(err, fmt.Errorf("got another Client: %t", same != client))
	}
	return askVersion(dialer.WithTrace(ctx, &dialer.Trace{Done: func(e dialer.Event) { u.answer.Proxy = e.Proxy }}), client)
}

// openSockets counts this process's.
func openSockets() (n int, err error) {
	files, err := filepath.Glob("/proc/self/fd/*")
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n, err
}

// A Cache reaches the clusters of hundreds of Secrets with few connections, follows a
// route that changes, and keeps a hostile Secret from touching the others.
func TestConnectCache(t *testing.T) {
	b := sharedBed(t)
	dir := t.TempDir()
	input := cacheInput{
		Kubeconfig: secretFor(t, b, "bed", squidRoutes(b)[0]).Data[kubeconfig.SecretKey],
		OtherRoute: b.Dante.URL().String(),
		Marker:     filepath.Join(dir, "marker"),
		TokenFile:  filepath.Join(dir, "token"),
	}
	if err := os.WriteFile(input.TokenFile, []byte("the controller's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := b.Squid.Log()
	if err != nil {
		t.Fatal(err)
	}
	var got cacheAnswer
	if err := b.Network.Client.Play(t.Context(), "connect-cache", input, &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d clusters reached, the slowest in %v; %d tunnels, %d sockets left; failed: %v",
		len(got.Reached), got.Slowest, got.Tunnels, got.Sockets, got.Failed)
	for i := range cacheClusters {
		if name := fmt.Sprintf("good-%03d", i); got.Reached[name] != 2 {
			t.Errorf("%s: reached %d times, want 2: %s", name, got.Reached[name], got.Failed[name])
		}
	}
	for name, want := range map[string]string{
		"broken":       "is not YAML",
		"empty":        "is empty",
		"bad-proxy":    `the scheme "ftp"`,
		"silent-proxy": "context deadline exceeded",
		"exec":         "names a program",
		"token-file":   "names a file",
	} {
		if !strings.Contains(got.Failed[name], want) || got.Reached[name] != 0 {
			t.Errorf("%s: got %q, reached %d times; want %q", name, got.Failed[name], got.Reached[name], want)
		}
	}
	if _, err := os.Stat(input.Marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a kubeconfig Secret ran a program of its choice: %v", err)
	}
	// Besides those of the Cache: the administrator's, and the silent proxy's.
	if got.Sockets > cacheSize+10 {
		t.Errorf("got %d open sockets, want some %d", got.Sockets, cacheSize)
	}
	if !strings.Contains(got.Wrong, "407") || got.Proxy != "socks5://"+b.Dante.URL().Host {
		t.Errorf("after the changes of the route: got %q and the proxy %q", got.Wrong, got.Proxy)
	}
	err = bed.Poll(t.Context(), "squid's log", func(context.Context) error {
		now, err := b.Squid.Log()
		if err != nil {
			return err
		}
		if n := strings.Count(strings.Join(now[len(before):], "\n"), "status=200"); n < got.Tunnels {
			return fmt.Errorf("got %d lines, want %d", n, got.Tunnels)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
