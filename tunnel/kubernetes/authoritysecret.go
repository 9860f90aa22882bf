package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/causewayproject/causeway/tunnel"
)

// DataTrusted is the key in an [AuthoritySecret] of the other trusted authorities:
// PEM certificates, for a rollover.
const DataTrusted = "trusted.crt"

// AuthoritySecret keeps the [tunnel.Authority] that several servers share in a
// Secret of the type kubernetes.io/tls: tls.crt is the authority that signs,
// tls.key its key, and [DataTrusted] may hold more authorities. The certificates
// after the first one in tls.crt are trusted, too. It is safe for concurrent use.
//
// It needs the right to get, list and watch the Secret (by resourceNames), and,
// for [AuthoritySecret.LoadOrCreate], to create secrets in Namespace, which RBAC
// can't limit to a name.
type AuthoritySecret struct {
	// Client reaches the API server; a kubernetes.Interface of client-go is one. Required.
	Client interface {
		CoreV1() coreclient.CoreV1Interface
	}
	// Namespace and Name are the Secret's. Required.
	Namespace, Name string
	// Error, if not nil, is called by Watch when the Secret can't be watched or
	// used. It must not block.
	Error func(error)
}

// Load reads the authority. If there is no such Secret, the error is
// fs.ErrNotExist; if it holds no authority, a [*tunnel.Error] with CodeConfig.
func (s AuthoritySecret) Load(ctx context.Context) (*tunnel.Authority, error) {
	if err := checkFields("authority secret", s.Client, "Namespace", s.Namespace, "Name", s.Name); err != nil {
		return nil, err
	}
	secret, err := s.Client.CoreV1().Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, s.errMissing()
	}
	if err != nil {
		return nil, wrapError("read authority", err)
	}
	return s.parseAuthority(secret)
}

// LoadOrCreate loads the authority, and creates it if there is no such Secret.
// Several servers that do so at the same time return the same authority.
func (s AuthoritySecret) LoadOrCreate(ctx context.Context) (*tunnel.Authority, error) {
	a, err := s.Load(ctx)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if a, err = tunnel.NewAuthority(); err != nil {
		return nil, wrapError("make authority", err)
	}
	cert, key, err := a.PEM()
	if err != nil {
		return nil, wrapError("make authority", err)
	}
	_, err = s.Client.CoreV1().Secrets(s.Namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return s.Load(ctx) // the faster one's
	case err != nil:
		return nil, wrapError("create authority", err)
	}
	return a, nil
}

// Watch calls set with the authority, first when it is known and then after each
// change, until ctx ends: [tunnel.Server.SetAuthority] is such a function. If the
// authority can't be used, the Secret is deleted or the API server is down, the
// last authority stays. The error is about a field, or nil.
func (s AuthoritySecret) Watch(ctx context.Context, set func(*tunnel.Authority) error) error {
	if err := checkFields("authority secret", s.Client, "Namespace", s.Namespace, "Name", s.Name); err != nil {
		return err
	}
	informer := newInformer(s.Client.CoreV1().Secrets(s.Namespace), &corev1.Secret{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.Name).String()
	})
	key := cache.ObjectName{Namespace: s.Namespace, Name: s.Name}.String()
	var last *corev1.Secret
	err := followInformer(ctx, informer, func(err error) { reportError(s.Error, wrapError("watch authority", err)) }, func() {
		object, _, _ := informer.GetStore().GetByKey(key)
		secret, ok := object.(*corev1.Secret)
		switch {
		case !ok:
			reportError(s.Error, s.errMissing())
		case last == nil || !sameAuthority(last, secret):
			last = secret
			a, err := s.parseAuthority(secret)
			if err == nil {
				err = wrapError("set authority", set(a))
			}
			reportError(s.Error, err)
		}
	})
	return wrapError("watch authority", err)
}

// parseAuthority returns no error that quotes the Secret.
func (s AuthoritySecret) parseAuthority(secret *corev1.Secret) (*tunnel.Authority, error) {
	cert := bytes.Join([][]byte{secret.Data[corev1.TLSCertKey], secret.Data[DataTrusted]}, []byte("\n"))
	a, err := tunnel.ParseAuthority(cert, secret.Data[corev1.TLSPrivateKeyKey])
	return a, wrapError(fmt.Sprintf("the Secret %s/%s", s.Namespace, s.Name), err)
}

func sameAuthority(a, b *corev1.Secret) bool {
	return !slices.ContainsFunc([]string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey, DataTrusted}, func(key string) bool {
		return !bytes.Equal(a.Data[key], b.Data[key])
	})
}

func (s AuthoritySecret) errMissing() error {
	return fmt.Errorf("tunnel/kubernetes: the Secret %s/%s: %w", s.Namespace, s.Name, fs.ErrNotExist)
}
