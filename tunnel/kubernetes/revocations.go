package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/tunnel"
)

const (
	defaultMaxStale = 5 * time.Minute
	// askTimeout bounds a question to the API server whose answer memory has, too.
	askTimeout = 3 * time.Second
	// minWatch is how long a watch without events lasts at least: a shorter one is
	// an error.
	minWatch = time.Second
)

type revokedRecord struct {
	Cluster string    `json:"cluster"`
	Agent   string    `json:"agent"`
	At      time.Time `json:"at"`
}

// Revoke implements [tunnel.Store].
func (s *SecretStore) Revoke(ctx context.Context, id tunnel.Identity) error {
	if err := s.checkFields(); err != nil {
		return err
	}
	name := s.revokedName(id)
	if known, live, _ := s.lookUpRevoked(name); known && live {
		return nil
	}
	secret, err := s.newSecret(name, LabelRevoked, revokedRecord{id.Cluster, id.Agent, time.Now().UTC()})
	if err == nil {
		_, err = s.secretClient().Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return wrapError("revoke", err)
	}
	s.addRevoked(name)
	return nil
}

// Revoked implements [tunnel.Store]. While Run watches, the answer comes from
// memory, which learns another server's revocation by the watch. When the watch is
// lost, the API server is asked; if it does not answer, memory counts for MaxStale.
func (s *SecretStore) Revoked(ctx context.Context, id tunnel.Identity) (bool, error) {
	if err := s.checkFields(); err != nil {
		return false, err
	}
	name := s.revokedName(id)
	known, live, recent := s.lookUpRevoked(name)
	if known || live {
		return known, nil
	}
	ask := ctx
	if recent {
		var cancel context.CancelFunc
		ask, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	_, err := s.secretClient().Get(ask, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err), recent && ctx.Err() == nil:
		return false, nil
	}
	return false, wrapError("read revocation", err)
}

// lookUpRevoked returns what is in memory: whether the agent is known to be
// revoked, whether memory is up to date (live), and whether it was so within
// MaxStale (recent).
func (s *SecretStore) lookUpRevoked(name string) (known, live, recent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known = s.revoked[name]
	return known, s.live, !s.lost.IsZero() && time.Since(s.lost) < cmp.Or(s.MaxStale, defaultMaxStale)
}

func (s *SecretStore) addRevoked(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live { // or else it could not be forgotten
		s.revoked[name] = struct{}{}
	}
}

// Run keeps the revocations in memory until ctx ends. The error is about a field,
// or nil. There must be one call at a time.
func (s *SecretStore) Run(ctx context.Context) error {
	if err := s.checkFields(); err != nil {
		return err
	}
	wait, told := backoff.Backoff{First: time.Second}, map[string]struct{}{}
	for {
		began := time.Now()
		err := s.listAndWatch(ctx, told)
		if ctx.Err() != nil {
			return nil
		}
		s.reportError(wrapError("watch revocations", err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait.Next(time.Since(began))):
		}
	}
}

// listAndWatch lists, and watches from there until an error. told are the
// revocations that Expel was called with, by the Secrets' names.
//
// It is not a Reflector of client-go: Revoked has to know whether a watch is open,
// and Error that one has ended, and a Reflector tells neither.
func (s *SecretStore) listAndWatch(ctx context.Context, told map[string]struct{}) error {
	version, listed, err := s.listRevoked(ctx)
	for err == nil {
		version, err = s.watchRevoked(ctx, version, listed, told)
		listed = nil
	}
	return err
}

// listRevoked replaces what is in memory.
func (s *SecretStore) listRevoked(ctx context.Context) (version string, listed []corev1.Secret, err error) {
	found := map[string]struct{}{}
	version, err = s.eachSecret(ctx, LabelRevoked, func(secret *corev1.Secret) error {
		found[secret.Name] = struct{}{}
		listed = append(listed, *secret)
		return nil
	})
	if err != nil {
		return "", nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = found
	return version, listed, nil
}

// watchRevoked keeps memory up to date until the watch ends, and returns the
// version at which the next watch begins. After an error the Secrets are listed
// again. Expel is called with what was listed only when memory is live, because
// Revoke, which it calls, then writes nothing.
func (s *SecretStore) watchRevoked(ctx context.Context, version string, listed []corev1.Secret, told map[string]struct{}) (string, error) {
	began := time.Now()
	w, err := s.secretClient().Watch(ctx, metav1.ListOptions{
		LabelSelector: LabelRevoked + "=" + s.namePrefix(), ResourceVersion: version, AllowWatchBookmarks: true,
	})
	if err != nil {
		return "", err
	}
	defer w.Stop()
	s.setLive(true)
	defer s.setLive(false)
	for n := range listed {
		s.expelOnce(&listed[n], told)
	}
	events := 0
	for e := range w.ResultChan() {
		secret, ok := e.Object.(*corev1.Secret)
		if e.Type == watch.Error || !ok {
			return "", apierrors.FromObject(e.Object)
		}
		events, version = events+1, secret.ResourceVersion
		s.applyEvent(e.Type, secret, told)
	}
	if events == 0 && time.Since(began) < minWatch {
		return "", errors.New("the watch ended at once")
	}
	return version, ctx.Err()
}

// setLive sets whether memory is up to date.
func (s *SecretStore) setLive(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live && !yes {
		s.lost = time.Now()
	}
	s.live = yes
}

// applyEvent applies one event to memory. A bookmark changes nothing.
func (s *SecretStore) applyEvent(kind watch.EventType, secret *corev1.Secret, told map[string]struct{}) {
	s.mu.Lock()
	switch kind {
	case watch.Added, watch.Modified:
		s.revoked[secret.Name] = struct{}{}
	case watch.Deleted:
		delete(s.revoked, secret.Name)
	}
	s.mu.Unlock()
	switch kind {
	case watch.Added, watch.Modified:
		s.expelOnce(secret, told)
	case watch.Deleted:
		delete(told, secret.Name)
	}
}

// expelOnce calls Expel, once for each revocation.
func (s *SecretStore) expelOnce(secret *corev1.Secret, told map[string]struct{}) {
	_, before := told[secret.Name]
	id, ok := s.revokedIdentity(secret)
	if s.Expel == nil || before || !ok {
		return
	}
	told[secret.Name] = struct{}{}
	s.Expel(id)
}

// revokedIdentity returns whom a Secret revokes, if its name agrees with its data.
func (s *SecretStore) revokedIdentity(secret *corev1.Secret) (tunnel.Identity, bool) {
	var r revokedRecord
	err := json.Unmarshal(secret.Data[dataKey], &r)
	id := tunnel.Identity{Cluster: r.Cluster, Agent: r.Agent}
	return id, err == nil && s.revokedName(id) == secret.Name
}

// revokedName hashes the identity, which may hold slashes and dots.
func (s *SecretStore) revokedName(id tunnel.Identity) string {
	return s.namePrefix() + "-revoked-" + hashName(id.URI().String())
}
