package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/causewayproject/causeway/tunnel"
)

// SecretStore is a [tunnel.Store] in Secrets, which any number of servers
// share: one Secret for each record. Neither the names nor the data of tokens and
// revocations are confidential. They are Secrets because few may write Secrets:
// a user that can write them can have a token used again, and let a revoked agent in.
// Its methods are safe for concurrent use; its fields must not change after the
// first call.
//
// A record is replaced by an update with the resourceVersion at which it was read: of
// several servers one succeeds.
//
// The server looks up a revocation each time an agent connects. Watch keeps a kind in
// memory; without it each look-up is a request. Payloads and values are one kind in
// that. Tokens are always read and written by requests, at most four at once, so that
// look-ups of revocations by the same Client do not wait behind a crowd that enrols.
//
// It needs the right to get, list, watch, create, update and delete secrets in
// Namespace. RBAC can't select Secrets by labels: give it a namespace of its own.
type SecretStore struct {
	// Client reaches the API server; a kubernetes.Interface of client-go is one. Required.
	// An enrolment takes two requests, or four if nobody watches revocations:
	// client-go's default limit of 5 a second (rest.Config.QPS) is too low when many
	// agents enrol at once.
	Client interface {
		CoreV1() coreclient.CoreV1Interface
	}
	// Namespace holds the Secrets. Required.
	Namespace string
	// Prefix begins the names of the Secrets and is the value of their labels: two
	// stores in one namespace need different ones. Empty means "causeway".
	Prefix string
	// MaxStale is how long, after the watch of revocations is lost, an agent that is not
	// known to be revoked is let in if the API server does not answer. Zero means 5
	// minutes; if negative, no such agent is let in.
	MaxStale time.Duration
	// Error, if not nil, is called when Watch can't watch the Secrets. The watch is
	// tried again. It must not block.
	Error func(error)

	mu     sync.Mutex         // guards the fields below
	memory map[string]*memory // by label, of what is watched
	turns  chan struct{}      // holds one for each call about a token that is under way
}

var _ tunnel.Store = (*SecretStore)(nil)

// Labels of the Secrets; the value is the store's Prefix.
const (
	LabelToken   = "causewayproject.github.io/tunnel-token"
	LabelRevoked = "causewayproject.github.io/tunnel-revoked"
	LabelState   = "causewayproject.github.io/tunnel-state" // values and payloads
	// labelCluster is on tokens, labelPayload on payloads; the value is a digest of the
	// cluster. Tokens of older versions do not have it.
	labelCluster = "causewayproject.github.io/tunnel-cluster"
	labelPayload = "causewayproject.github.io/tunnel-payload"
)

const (
	pageSize = 500
	// tokenCalls is how many calls about tokens may have requests in the Client's
	// queue at once. Another request waits behind at most so many: a second by
	// client-go's default limit.
	tokenCalls = 4
	// askTimeout bounds a question to the API server whose answer memory has, too.
	askTimeout      = 3 * time.Second
	defaultMaxStale = 5 * time.Minute

	dataKey    = "value"
	clusterKey = "cluster" // of a payload, as nameKey
	nameKey    = "name"
)

// labelOf returns the label of a kind's Secrets.
func labelOf(kind tunnel.Kind) string {
	switch kind {
	case tunnel.KindToken:
		return LabelToken
	case tunnel.KindRevoked:
		return LabelRevoked
	}
	return LabelState
}

// secretName hashes what may be any text.
func (s *SecretStore) secretName(kind tunnel.Kind, name string) string {
	switch kind {
	case tunnel.KindToken:
		name = "token-" + hashName(name)
	case tunnel.KindRevoked:
		name = "revoked-" + name
	case tunnel.KindPayload:
		name = "payload-" + hashName(name)[:32]
	}
	return s.namePrefix() + "-" + name
}

func hashName(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}

// newSecret returns the Secret of a record.
func (s *SecretStore) newSecret(r tunnel.Record) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.secretName(r.Kind, r.Name), Namespace: s.Namespace, ResourceVersion: r.Version,
			Labels: map[string]string{labelOf(r.Kind): s.namePrefix()}},
		Data: map[string][]byte{dataKey: r.Data},
	}
	switch r.Kind {
	case tunnel.KindToken:
		secret.Labels[labelCluster] = hashName(r.Cluster)[:40]
	case tunnel.KindPayload:
		cluster, name, _ := strings.Cut(r.Name, "\n")
		secret.Labels[labelPayload] = hashName(cluster)[:32]
		secret.Data[clusterKey], secret.Data[nameKey] = []byte(cluster), []byte(name)
	}
	return secret
}

// readSecret returns the record of a Secret that has the label. A Secret whose name does
// not agree with what is in it has a record without a Name.
func (s *SecretStore) readSecret(label string, secret *corev1.Secret) tunnel.Record {
	r := tunnel.Record{Kind: tunnel.KindValue, Data: append([]byte{}, secret.Data[dataKey]...), Version: secret.ResourceVersion}
	var about struct{ ID, Cluster string }
	if label != LabelState {
		_ = json.Unmarshal(r.Data, &about) // tunnel.Records says that it is damaged
	}
	r.Cluster = about.Cluster
	switch {
	case label == LabelToken:
		r.Kind, r.Name = tunnel.KindToken, about.ID
	case label == LabelRevoked:
		r.Kind, r.Name = tunnel.KindRevoked, strings.TrimPrefix(secret.Name, s.namePrefix()+"-revoked-")
	case secret.Labels[labelPayload] != "":
		r.Kind, r.Cluster = tunnel.KindPayload, string(secret.Data[clusterKey])
		r.Name = r.Cluster + "\n" + string(secret.Data[nameKey])
	default:
		r.Name = strings.TrimPrefix(secret.Name, s.namePrefix()+"-")
	}
	if s.secretName(r.Kind, r.Name) != secret.Name {
		r.Name = ""
	}
	return r
}

// Get implements [tunnel.Store]. While the kind is watched, the answer comes from memory,
// which learns another server's writes by the watch. When the watch of revocations is lost,
// the API server is asked; if it does not answer, memory counts for MaxStale. Payloads and
// values count as they were.
func (s *SecretStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	if err := s.checkFields(); err != nil {
		return tunnel.Record{}, err
	}
	r, known, m := s.lookUp(kind, name)
	if m.live || known && isForGood(r) {
		return r, s.checkKnown(kind, name, known)
	}
	ask := ctx
	if m.isRecent(s.MaxStale) {
		var cancel context.CancelFunc
		ask, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	end, err := s.awaitTurn(ctx, kind)
	if err != nil {
		return r, wrapError("read "+string(kind), err)
	}
	defer end()
	secret, err := s.secretClient().Get(ask, s.secretName(kind, name), metav1.GetOptions{})
	switch {
	case err == nil:
		r = s.readSecret(labelOf(kind), secret)
		r.Kind, r.Name = kind, name
		return r, nil
	case apierrors.IsNotFound(err):
		return tunnel.Record{}, s.checkKnown(kind, name, false)
	case m.isRecent(s.MaxStale) && ctx.Err() == nil:
		return r, s.checkKnown(kind, name, known)
	}
	return tunnel.Record{}, wrapError("read "+string(kind), err)
}

// checkKnown returns fs.ErrNotExist if there is no such record.
func (s *SecretStore) checkKnown(kind tunnel.Kind, name string, known bool) error {
	if known {
		return nil
	}
	return fmt.Errorf("tunnel/kubernetes: the Secret %s/%s: %w", s.Namespace, s.secretName(kind, name), fs.ErrNotExist)
}

// Create implements [tunnel.Store].
func (s *SecretStore) Create(ctx context.Context, r tunnel.Record) error {
	r.Version = ""
	return s.write(ctx, "create ", r, func(secret *corev1.Secret) (*corev1.Secret, error) {
		return s.secretClient().Create(ctx, secret, metav1.CreateOptions{})
	})
}

// Replace implements [tunnel.Store].
func (s *SecretStore) Replace(ctx context.Context, r tunnel.Record) error {
	if r.Version == "" {
		return tunnel.ErrConflict
	}
	return s.write(ctx, "replace ", r, func(secret *corev1.Secret) (*corev1.Secret, error) {
		return s.secretClient().Update(ctx, secret, metav1.UpdateOptions{})
	})
}

// Delete implements [tunnel.Store].
func (s *SecretStore) Delete(ctx context.Context, r tunnel.Record) error {
	return s.write(ctx, "delete ", r, func(secret *corev1.Secret) (*corev1.Secret, error) {
		var opts metav1.DeleteOptions
		if r.Version != "" {
			opts.Preconditions = &metav1.Preconditions{ResourceVersion: &r.Version}
		}
		err := s.secretClient().Delete(ctx, secret.Name, opts)
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return &corev1.Secret{}, err
	})
}

// write writes the Secret of a record, and keeps what the API server returned in memory.
func (s *SecretStore) write(ctx context.Context, what string, r tunnel.Record, request func(*corev1.Secret) (*corev1.Secret, error)) error {
	if err := s.checkFields(); err != nil {
		return err
	}
	end, err := s.awaitTurn(ctx, r.Kind)
	if err != nil {
		return wrapError(what+string(r.Kind), err)
	}
	defer end()
	secret := s.newSecret(r)
	written, err := request(secret)
	switch {
	case apierrors.IsAlreadyExists(err):
		s.remember(ctx, r, nil)
		return fmt.Errorf("tunnel/kubernetes: the Secret %s/%s: %w", s.Namespace, secret.Name, fs.ErrExist)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err) && r.Version != "":
		s.remember(ctx, r, nil)
		return tunnel.ErrConflict
	case err != nil:
		return wrapError(what+string(r.Kind), err)
	}
	s.remember(ctx, r, written)
	return nil
}

// List implements [tunnel.Store]. Payloads and values are in memory while they are watched.
func (s *SecretStore) List(ctx context.Context, kind tunnel.Kind, of string) (all []tunnel.Record, err error) {
	if err := s.checkFields(); err != nil {
		return nil, err
	}
	if all, ok := s.listMemory(kind, of); ok {
		return all, nil
	}
	end, err := s.awaitTurn(ctx, kind)
	if err != nil {
		return nil, wrapError("list "+string(kind), err)
	}
	defer end()
	which := []string{""}
	switch {
	case kind == tunnel.KindToken && of != "":
		which = []string{labelCluster + "=" + hashName(of)[:40], "!" + labelCluster}
	case kind == tunnel.KindPayload && of != "":
		which = []string{labelPayload + "=" + hashName(of)[:32]}
	}
	for _, selector := range which {
		_, err := s.eachSecret(ctx, labelOf(kind), selector, func(secret *corev1.Secret) {
			if r := s.readSecret(labelOf(kind), secret); r.Kind == kind && r.Name != "" && r.IsOf(of) {
				all = append(all, r)
			}
		})
		if err != nil {
			return nil, wrapError("list "+string(kind), err)
		}
	}
	return all, nil
}

// eachSecret calls f with the Secrets that have the label, and that the other selector
// matches if it is not empty. It returns the version of the list.
func (s *SecretStore) eachSecret(ctx context.Context, label, other string, f func(*corev1.Secret)) (version string, err error) {
	options := metav1.ListOptions{LabelSelector: strings.TrimSuffix(label+"="+s.namePrefix()+","+other, ","), Limit: pageSize}
	for {
		page, err := s.secretClient().List(ctx, options)
		if err != nil {
			return "", err
		}
		for n := range page.Items {
			f(&page.Items[n])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return page.ResourceVersion, nil
		}
	}
}

// awaitTurn waits until a call about a token may begin. The caller calls end after
// it.
func (s *SecretStore) awaitTurn(ctx context.Context, kind tunnel.Kind) (end func(), err error) {
	if kind != tunnel.KindToken {
		return func() {}, nil
	}
	s.mu.Lock()
	if s.turns == nil {
		s.turns = make(chan struct{}, tokenCalls)
	}
	turns := s.turns
	s.mu.Unlock()
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *SecretStore) secretClient() coreclient.SecretInterface {
	return s.Client.CoreV1().Secrets(s.Namespace)
}

func (s *SecretStore) namePrefix() string { return cmp.Or(s.Prefix, "causeway") }

func (s *SecretStore) checkFields() error {
	return checkFields("secret store", s.Client, "Namespace", s.Namespace)
}
