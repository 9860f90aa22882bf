package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// informerEnv says for how long the informer is left alone.
const informerEnv = "CAUSEWAY_E2E_INFORMER"

type unmodifiedInput struct {
	Kubeconfig []byte
	Namespace  string
	For        time.Duration
}

func (c *cell) unmodified() (unmodifiedInput, error) {
	data, err := os.ReadFile(c.kubeconfig)
	input := unmodifiedInput{Kubeconfig: data, Namespace: c.namespace}
	if text := os.Getenv(informerEnv); text != "" && err == nil {
		input.For, err = time.ParseDuration(text)
	}
	return input, err
}

type informerAnswer struct {
	Added  []string
	Broken []string // the ends of watches
}

func informer(ctx context.Context, c *cell) error {
	input, err := c.unmodified()
	if err != nil {
		return err
	}
	var got informerAnswer
	if err := c.hub.Play(ctx, "informer", input, &got); err != nil {
		return err
	}
	if !slices.Contains(got.Added, "informer-1") || !slices.Contains(got.Added, "informer-2") || len(got.Broken) > 0 {
		return fmt.Errorf("got %+v, want both objects by one watch", got)
	}
	return nil
}

// informerRole has an informer see an object that is made before it starts,
// and one that is made when it was left alone for a while.
func informerRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input unmodifiedInput
	config, err := input.read(in)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	secrets := clients.CoreV1().Secrets(input.Namespace)
	create := func(name string) error {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err := create("informer-1"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(input.Namespace))
	seen := factory.Core().V1().Secrets().Informer()
	var (
		mu     sync.Mutex // guards answer
		answer informerAnswer
		added  = make(chan string, 100)
	)
	seen.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		mu.Lock()
		defer mu.Unlock()
		answer.Broken = append(answer.Broken, err.Error())
	})
	seen.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- o.(*corev1.Secret).Name }})
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	answer.Added = append(answer.Added, <-added)
	<-time.After(input.For) // nothing to wait for: that is what is tested
	if err := create("informer-2"); err != nil {
		return err
	}
	answer.Added = append(answer.Added, <-added)
	mu.Lock()
	defer mu.Unlock()
	return json.NewEncoder(out).Encode(answer)
}

// read returns the configuration that client-go makes of the kubeconfig.
func (input *unmodifiedInput) read(in io.Reader) (*rest.Config, error) {
	if err := json.NewDecoder(in).Decode(input); err != nil {
		return nil, fmt.Errorf("role: input: %w", err)
	}
	return clientcmd.RESTConfigFromKubeConfig(input.Kubeconfig)
}

func clusterCache(ctx context.Context, c *cell) error {
	input, err := c.unmodified()
	if err != nil {
		return err
	}
	var got []string
	if err := c.hub.Play(ctx, "cluster-cache", input, &got); err != nil {
		return err
	}
	if !slices.Equal(got, []string{"pod", "pod"}) {
		return fmt.Errorf("got the pods %q, want the one, live and from the cache", got)
	}
	return nil
}

// clusterCacheRole does what Cluster API's ClusterCache does: it gets the
// kubeconfig from the Secret of the cluster, and makes of it a configuration, a
// REST mapper, a client, and a cache.
func clusterCacheRole(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config, err := secretConfig(ctx, in)
	if err != nil {
		return err
	}
	namespace := config.UserAgent
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	objects, err := ctrlcache.New(config, ctrlcache.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return err
	}
	live, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- objects.Start(ctx) }()
	var names []string
	for _, reader := range []client.Reader{live, objects} {
		var pods corev1.PodList
		if err := reader.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, p := range pods.Items {
			names = append(names, p.Name)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(names)
}

// secretConfig stores the kubeconfig as Cluster API's Secret, and gets it by
// Cluster API's code. The user agent is the namespace.
func secretConfig(ctx context.Context, in io.Reader) (*rest.Config, error) {
	var input unmodifiedInput
	config, err := input.read(in)
	if err != nil {
		return nil, err
	}
	management, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	err = management.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: input.Namespace, Name: "prod-kubeconfig"},
		Data:       map[string][]byte{kubeconfig.SecretKey: input.Kubeconfig},
	})
	if err != nil {
		return nil, err
	}
	data, err := capikubeconfig.FromSecret(ctx, management, client.ObjectKey{Namespace: input.Namespace, Name: "prod"})
	if err != nil {
		return nil, err
	}
	if config, err = clientcmd.RESTConfigFromKubeConfig(data); err == nil {
		config.UserAgent = input.Namespace
	}
	return config, err
}

// curl asks for something that takes a client certificate.
func curl(ctx context.Context, c *cell) error {
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	if err != nil {
		return err
	}
	user, path := config.AuthInfos["bed-admin"], func(name string) string { return filepath.Join(c.dir, name) }
	for name, data := range map[string][]byte{
		"ca": config.Clusters["bed"].CertificateAuthorityData, "crt": user.ClientCertificateData, "key": user.ClientKeyData,
	} {
		if err := os.WriteFile(path(name), data, 0o600); err != nil {
			return err
		}
	}
	argv := []string{"curl", "--silent", "--show-error", "--fail", "--cacert", path("ca"), "--cert", path("crt"), "--key", path("key")}
	server := "kubernetes.default.svc:443"
	switch {
	case c.proxy == nil:
		host, port, _ := net.SplitHostPort(c.sni)
		server = net.JoinHostPort(bed.SNIName, port)
		argv = append(argv, "--resolve", server+":"+host)
	case c.h2:
		argv = append(argv, "--proxy", c.proxy.String(), "--proxy-cacert", path("ca"), "--proxy-http2")
	default:
		argv = append(argv, "--proxy", strings.Replace(c.proxy.String(), "socks5:", "socks5h:", 1), "--proxy-cacert", path("ca"))
	}
	out, err := c.hub.Run(ctx, bed.Command{Argv: append(argv, "https://"+server+"/api/v1/namespaces/"+c.namespace)})
	if err == nil && !strings.Contains(out, `"name": "`+c.namespace+`"`) {
		err = fmt.Errorf("got %q", out)
	}
	return err
}
