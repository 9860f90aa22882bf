package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/causewayproject/causeway/tunnel"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

// secretState is a state in Secrets, for any number of servers. In addition to those of
// AuthoritySecret and SecretStore there is one Secret for each name that has a value,
// and one for each payload.
type secretState struct {
	client            kubernetes.Interface
	namespace, prefix string
	log               *slog.Logger

	authority tunnelkube.AuthoritySecret
	store     *tunnelkube.SecretStore
	cached    atomic.Pointer[cache.SharedIndexInformer] // the Secrets with labelState, once it is filled
}

const (
	labelState   = "causewayproject.github.io/tunnel-state"   // the prefix
	labelPayload = "causewayproject.github.io/tunnel-payload" // a digest of the cluster

	keyValue   = "value"
	keyCluster = "cluster" // for people
	keyName    = "name"
)

func newSecretState(client kubernetes.Interface, namespace, prefix string, log *slog.Logger) *secretState {
	warn := func(err error) { log.Warn("state", "error", err) }
	return &secretState{
		client: client, namespace: namespace, prefix: prefix, log: log,
		authority: tunnelkube.AuthoritySecret{Client: client, Namespace: namespace, Name: prefix + "-authority", Error: warn},
		store:     &tunnelkube.SecretStore{Client: client, Namespace: namespace, Prefix: prefix, Error: warn},
	}
}

func (s *secretState) check(ctx context.Context) error {
	_, err := s.authority.Load(ctx)
	return err
}

func (s *secretState) server(ctx context.Context) (*tunnel.Server, error) {
	a, err := s.authority.LoadOrCreate(ctx)
	if err != nil {
		return nil, err
	}
	server := &tunnel.Server{Authority: a, Store: s.store}
	s.store.Expel = server.Expel
	return server, nil
}

// follow keeps the cache, revocations and the server's authority up to date until ctx
// ends.
func (s *secretState) follow(ctx context.Context, server *tunnel.Server) {
	informer := coreinformers.NewFilteredSecretInformer(s.client, s.namespace, 0, cache.Indexers{labelPayload: byPayloadLabel},
		func(o *metav1.ListOptions) { o.LabelSelector = labels.Set{labelState: s.prefix}.String() })
	var following sync.WaitGroup
	following.Go(func() { s.logError(s.store.Run(ctx)) })
	following.Go(func() { s.logError(s.authority.Watch(ctx, server.SetAuthority)) })
	following.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		s.cached.Store(&informer)
	}
	following.Wait()
}

func (s *secretState) logError(err error) {
	if err != nil {
		s.log.Warn("state", "error", err)
	}
}

func byPayloadLabel(object any) ([]string, error) {
	if secret, ok := object.(*corev1.Secret); ok && secret.Labels[labelPayload] != "" {
		return []string{secret.Labels[labelPayload]}, nil
	}
	return nil, nil
}

// read uses the cache if there is one.
func (s *secretState) read(ctx context.Context, name string) ([]byte, error) {
	var secret *corev1.Secret
	var err error
	if memory := s.cached.Load(); memory != nil {
		object, _, _ := (*memory).GetStore().GetByKey(s.namespace + "/" + s.secretName(name))
		secret, _ = object.(*corev1.Secret)
	} else if secret, err = s.secretClient().Get(ctx, s.secretName(name), metav1.GetOptions{}); apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	switch {
	case err != nil:
		return nil, err
	case secret == nil:
		return nil, fmt.Errorf("the Secret %s/%s: %w", s.namespace, s.secretName(name), fs.ErrNotExist)
	}
	return secret.Data[keyValue], nil
}

func (s *secretState) replace(ctx context.Context, name string, data []byte) error {
	return s.putSecret(ctx, s.newSecret(name, nil, map[string][]byte{keyValue: data}))
}

func (s *secretState) create(ctx context.Context, name string, data []byte) error {
	_, err := s.secretClient().Create(ctx, s.newSecret(name, nil, map[string][]byte{keyValue: data}), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("the Secret %s/%s: %w", s.namespace, s.secretName(name), fs.ErrExist)
	}
	return err
}

// list uses the cache if there is one.
func (s *secretState) list(ctx context.Context, prefix string) (values map[string][]byte, err error) {
	var found []*corev1.Secret
	if memory := s.cached.Load(); memory != nil {
		for _, object := range (*memory).GetStore().List() {
			found = append(found, object.(*corev1.Secret))
		}
	} else {
		all, err := s.secretClient().List(ctx, metav1.ListOptions{LabelSelector: labels.Set{labelState: s.prefix}.String()})
		if err != nil {
			return nil, err
		}
		for n := range all.Items {
			found = append(found, &all.Items[n])
		}
	}
	values = map[string][]byte{}
	for _, secret := range found {
		if name, ok := strings.CutPrefix(secret.Name, s.secretName(prefix)); ok {
			values[name] = secret.Data[keyValue]
		}
	}
	return values, nil
}

func (s *secretState) remove(ctx context.Context, name string) error {
	err := s.secretClient().Delete(ctx, s.secretName(name), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the Secret %s/%s: %w", s.namespace, s.secretName(name), fs.ErrNotExist)
	}
	return err
}

// putSecret writes the Secret whether or not it exists. The last write counts, as with
// a file.
func (s *secretState) putSecret(ctx context.Context, secret *corev1.Secret) error {
	_, err := s.secretClient().Update(ctx, secret, metav1.UpdateOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err = s.secretClient().Create(ctx, secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = s.secretClient().Update(ctx, secret, metav1.UpdateOptions{})
	}
	return err
}

func (s *secretState) setPayload(ctx context.Context, cluster string, p tunnel.Payload) error {
	name := "payload-" + hashName(cluster+"\n"+p.Name)
	return s.putSecret(ctx, s.newSecret(name, map[string]string{labelPayload: hashName(cluster)},
		map[string][]byte{keyCluster: []byte(cluster), keyName: []byte(p.Name), keyValue: p.Data}))
}

// payloads uses the cache if there is one.
func (s *secretState) payloads(ctx context.Context, cluster string) ([]tunnel.Payload, error) {
	var found []*corev1.Secret
	if memory := s.cached.Load(); memory != nil {
		objects, err := (*memory).GetIndexer().ByIndex(labelPayload, hashName(cluster))
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			found = append(found, object.(*corev1.Secret))
		}
	} else {
		options := metav1.ListOptions{LabelSelector: labels.Set{labelState: s.prefix, labelPayload: hashName(cluster)}.String()}
		all, err := s.secretClient().List(ctx, options)
		if err != nil {
			return nil, err
		}
		for n := range all.Items {
			found = append(found, &all.Items[n])
		}
	}
	return payloadsIn(found), nil
}

// payloadsIn returns the payloads in the order of their names, as a directory does.
func payloadsIn(found []*corev1.Secret) (list []tunnel.Payload) {
	for _, secret := range found {
		list = append(list, tunnel.Payload{Name: string(secret.Data[keyName]), Data: secret.Data[keyValue]})
	}
	slices.SortFunc(list, func(a, b tunnel.Payload) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (s *secretState) newSecret(name string, more map[string]string, data map[string][]byte) *corev1.Secret {
	set := map[string]string{labelState: s.prefix}
	maps.Copy(set, more)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.secretName(name), Namespace: s.namespace, Labels: set}, Data: data}
}

func (s *secretState) secretName(name string) string { return s.prefix + "-" + name }

func (s *secretState) secretClient() coreclient.SecretInterface {
	return s.client.CoreV1().Secrets(s.namespace)
}

// hashName makes a name, or the value of a label, of any text.
func hashName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
