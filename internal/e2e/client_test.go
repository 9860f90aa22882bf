package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

type clientInput struct {
	Kubeconfig []byte
	ProxyCA    []byte
	Forward    []hop  // on the way to the proxy
	Namespace  string // is made
}

type clientAnswer struct {
	Namespaces []string
	Watched    []string // configmaps, in the order in which the watch told of them
	User       string   // as the API server knows the client
	Groups     []string
	ProxyTLS   string // the version, with an https proxy
	Phases     []string
}

// clientRole does with a Client what the kubectl tests do.
func clientRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input clientInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("client role: input: %w", err)
	}
	client, err := newClient(input.Kubeconfig, input.ProxyCA, input.Forward...)
	if err != nil {
		return err
	}
	defer client.Close()
	clientset, err := kubernetes.NewForConfig(client.Config())
	if err != nil {
		return err
	}
	var answer clientAnswer
	ctx = dialer.WithTrace(ctx, &dialer.Trace{Done: func(e dialer.Event) {
		answer.Phases = append(answer.Phases, string(e.Phase))
		if e.TLS != nil {
			answer.ProxyTLS = tls.VersionName(e.TLS.Version)
		}
	}})
	if err := use(ctx, clientset, input.Namespace, &answer); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

func newClient(data, proxyCA []byte, forward ...hop) (*connect.Client, error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, err
	}
	opts := &connect.Options{}
	if len(proxyCA) > 0 {
		opts.ProxyTLS = proxyTLS(proxyCA)
	}
	if opts.Forward, err = dialerThrough(forward...); err != nil {
		return nil, err
	}
	return connect.New(config, opts)
}

func use(ctx context.Context, clientset kubernetes.Interface, namespace string, answer *clientAnswer) error {
	review, err := clientset.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	answer.User, answer.Groups = review.Status.UserInfo.Username, review.Status.UserInfo.Groups

	object := metav1.ObjectMeta{Name: namespace}
	if _, err := clientset.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: object}, metav1.CreateOptions{}); err != nil {
		return err
	}
	list, err := clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, ns := range list.Items {
		answer.Namespaces = append(answer.Namespaces, ns.Name)
	}
	return watchConfigMaps(ctx, clientset, namespace, answer)
}

// watchConfigMaps sees an object that is created while the watch runs.
func watchConfigMaps(ctx context.Context, clientset kubernetes.Interface, namespace string, answer *clientAnswer) error {
	maps := clientset.CoreV1().ConfigMaps(namespace)
	w, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	create := func(name string) error {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	for _, name := range []string{"one", "two"} {
		if err := create(name); err != nil {
			return err
		}
		e, ok := <-w.ResultChan()
		object, isMap := e.Object.(*corev1.ConfigMap)
		if !ok || e.Type != watch.Added || !isMap {
			return errors.Join(errors.New("the watch ended or told of something else"), fmt.Errorf("%+v", e))
		}
		answer.Watched = append(answer.Watched, object.Name)
	}
	return nil
}

// A Client reaches the API server by the kubeconfig's route alone, whatever the
// environment says, shows the API server its certificate, and the proxy none.
func TestClient(t *testing.T) {
	b := sharedBed(t)
	for _, r := range routes(b) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			before, err := r.lines(r.client)
			if err != nil {
				t.Fatal(err)
			}
			input := clientInput{
				Kubeconfig: secretFor(t, b, "bed", r).Data[kubeconfig.SecretKey],
				ProxyCA:    r.proxyCA,
				Namespace:  "client-" + r.name,
			}
			var got clientAnswer
			err = b.Network.Client.Play(t.Context(), "client", input, &got,
				"HTTPS_PROXY=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1", "ALL_PROXY=http://127.0.0.1:1", "NO_PROXY=*")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", got)
			if !slices.Contains(got.Namespaces, "default") || !slices.Contains(got.Namespaces, input.Namespace) {
				t.Errorf("got namespaces %q", got.Namespaces)
			}
			if !slices.Contains(got.Watched, "one") || !slices.Contains(got.Watched, "two") {
				t.Errorf("watch: got %q, want one and two", got.Watched)
			}
			if got.User != "kubernetes-admin" || !slices.Contains(got.Groups, "system:masters") {
				t.Errorf("the API server knows the client as %s of %q", got.User, got.Groups)
			}
			if (got.ProxyTLS == "TLS 1.3") != (r.proxy.Scheme == "https") {
				t.Errorf("got %q as the TLS version to a %s proxy", got.ProxyTLS, r.proxy.Scheme)
			}
			// One connection serves all of it.
			if n := strings.Count(strings.Join(got.Phases, " "), "tcp"); n != 1 {
				t.Errorf("got phases %q, want one connection", got.Phases)
			}
			r.waitLogged(t, "the client", len(before), 1, r.client)
		})
	}
}
