package connect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/kubeconfig"
)

// SecretClient is the part of client-go's client for one namespace's Secrets that a
// [SecretSource] needs: clientset.CoreV1().Secrets(namespace) is one. Because it is an
// interface, a program that imports this package links no other API's types.
type SecretClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Secret, error)
	List(ctx context.Context, opts metav1.ListOptions) (*corev1.SecretList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// SecretSource is the kubeconfig in the Secret of that name, in the cluster and
// the namespace of client, under the key "value" ([kubeconfig.SecretKey]), as
// Cluster API and [kubeconfig.Secret] write it.
//
// It lists and watches that one Secret, by its name: the permission to get, list
// and watch it is enough. A failed call is tried again, at first within 4 and in the
// end within 30 seconds, and each failure is an error of Watch. A watch that
// ends in its time and a resourceVersion that has expired are no failures. If the
// Secret is missing, or has no kubeconfig, there is an error, too: of a Secret
// that is missing or was deleted, apierrors.IsNotFound is true.
func SecretSource(client SecretClient, name string) Source {
	return &secretSource{client: client, name: name}
}

type secretSource struct {
	client SecretClient
	name   string
}

var _ Source = (*secretSource)(nil)

// Read gets the Secret.
func (s *secretSource) Read(ctx context.Context) (*clientcmdapi.Config, error) {
	secret, err := s.client.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return nil, s.wrapError(err)
	}
	return kubeconfig.FromSecret(secret)
}

// Watch lists and watches the Secret until ctx ends.
func (s *secretSource) Watch(ctx context.Context, use func(*clientcmdapi.Config, error)) {
	w := &secretWatch{secretSource: s, use: use}
	retry := &backoff.Backoff{}
	for ctx.Err() == nil {
		began, resumed := time.Now(), w.version != ""
		err := w.run(ctx)
		expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		if err != nil {
			w.version = "" // the list says what there is
		}
		if err != nil && !expired && ctx.Err() == nil {
			w.reported = nil
			use(nil, s.wrapError(err))
		}
		lived := time.Since(began)
		if expired && resumed || err == nil && lived >= time.Second {
			continue
		}
		sleepContext(ctx, retry.Next(lived))
	}
}

// sleepContext returns after d, or when ctx ends.
func sleepContext(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// secretWatch is one call of Watch.
type secretWatch struct {
	*secretSource
	use      func(*clientcmdapi.Config, error)
	version  string         // where the watch goes on; empty: with a list
	reported *secretContent // the content in the last call of use; nil before it, and after an error
}

// secretContent is what counts of a Secret: others change labels and owners.
type secretContent struct {
	there bool
	data  string
}

func (w *secretWatch) listOptions() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()}
}

// run ends with the watch. Without an error, another one goes on from there.
func (w *secretWatch) run(ctx context.Context) error {
	if w.version == "" {
		if err := w.list(ctx); err != nil {
			return err
		}
	}
	opts := w.listOptions()
	opts.ResourceVersion, opts.AllowWatchBookmarks = w.version, true
	// The API server ends it then; a connection that is dead without a word is
	// found out by the transport.
	seconds := int64(300 + rand.IntN(300))
	opts.TimeoutSeconds = &seconds
	events, err := w.client.Watch(ctx, opts)
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-events.ResultChan():
			if !ok {
				return nil
			}
			if err := w.handleEvent(event); err != nil {
				return err
			}
		}
	}
}

func (w *secretWatch) list(ctx context.Context) error {
	list, err := w.client.List(ctx, w.listOptions())
	if err != nil {
		return err
	}
	var secret *corev1.Secret
	// A server that does not know the selector sends the others, too.
	for i := range list.Items {
		if list.Items[i].Name == w.name {
			secret = &list.Items[i]
		}
	}
	w.reportSecret(secret)
	w.version = list.ResourceVersion
	return nil
}

func (w *secretWatch) handleEvent(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	secret, ok := event.Object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("the watch sent a %T", event.Object)
	}
	switch {
	case event.Type == watch.Bookmark:
	case secret.Name != w.name:
	case event.Type == watch.Deleted:
		w.reportSecret(nil)
	default:
		w.reportSecret(secret)
	}
	w.version = secret.ResourceVersion
	return nil
}

// reportSecret passes on what is new.
func (w *secretWatch) reportSecret(secret *corev1.Secret) {
	now := secretContent{there: secret != nil}
	if now.there {
		now.data = string(secret.Data[kubeconfig.SecretKey])
	}
	if w.reported != nil && *w.reported == now {
		return
	}
	w.reported = &now
	if !now.there {
		w.use(nil, w.wrapError(apierrors.NewNotFound(corev1.Resource("secrets"), w.name)))
		return
	}
	w.use(kubeconfig.FromSecret(secret))
}

func (s *secretSource) wrapError(err error) error {
	return fmt.Errorf("connect: Secret %s: %w", s.name, err)
}
