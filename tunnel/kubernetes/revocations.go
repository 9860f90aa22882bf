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
	Agent   string    `json:"agent,omitempty"`
	At      time.Time `json:"at"`
}

// Revoke implements [tunnel.Store].
func (s *SecretStore) Revoke(ctx context.Context, id tunnel.Identity, now time.Time) (at time.Time, err error) {
	if err := s.checkFields(); err != nil {
		return at, err
	}
	name := s.revokedName(id)
	err = retryConflicts(ctx, func() error {
		at = now
		secret, err := s.newSecret(name, LabelRevoked, revokedRecord{id.Cluster, id.Agent, at})
		if err == nil {
			_, err = s.secretClient().Create(ctx, secret, metav1.CreateOptions{})
		}
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if id.Agent != "" {
			return nil
		}
		at, err = s.revokeAgain(ctx, name, id, now)
		return err
	})
	if err != nil {
		return at, wrapError("revoke", err)
	}
	s.addRevoked(name, at)
	return at, nil
}

// revokeAgain replaces the time of a revocation by now, or by one that is later than what
// was recorded. A damaged record is replaced.
func (s *SecretStore) revokeAgain(ctx context.Context, name string, id tunnel.Identity, now time.Time) (at time.Time, err error) {
	secret, err := s.secretClient().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return at, err
	}
	at = now
	if was := s.revokedTime(secret); !now.After(was) {
		at = was.Add(time.Millisecond)
	}
	text, err := json.Marshal(revokedRecord{id.Cluster, id.Agent, at})
	if err != nil {
		return at, err
	}
	secret.Data = map[string][]byte{dataKey: text}
	_, err = s.secretClient().Update(ctx, secret, metav1.UpdateOptions{})
	return at, err
}

// Revoked implements [tunnel.Store]. While Run watches, the answer comes from
// memory, which learns another server's revocation by the watch. When the watch is
// lost, the API server is asked; if it does not answer, memory counts for MaxStale.
func (s *SecretStore) Revoked(ctx context.Context, id tunnel.Identity) (time.Time, error) {
	if err := s.checkFields(); err != nil {
		return time.Time{}, err
	}
	name := s.revokedName(id)
	at, known, live, recent := s.lookUpRevoked(name)
	if live || known && id.Agent != "" {
		return s.checkTime(name, at, known)
	}
	ask := ctx
	if recent {
		var cancel context.CancelFunc
		ask, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	secret, err := s.secretClient().Get(ask, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return s.checkTime(name, s.revokedTime(secret), true)
	case apierrors.IsNotFound(err):
		return time.Time{}, nil
	case recent && ctx.Err() == nil:
		return s.checkTime(name, at, known)
	}
	return time.Time{}, wrapError("read revocation", err)
}

// checkTime returns the time of a revocation, if there is one. If its Secret is damaged,
// the error says so.
func (s *SecretStore) checkTime(name string, at time.Time, known bool) (time.Time, error) {
	if known && at.IsZero() {
		return at, errDamaged(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}})
	}
	return at, nil
}

// lookUpRevoked returns what is in memory: when the agent or cluster was revoked (zero:
// its Secret is damaged) and whether it was (known), whether memory is up to date (live),
// and whether it was so within MaxStale (recent).
func (s *SecretStore) lookUpRevoked(name string) (at time.Time, known, live, recent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known = s.revoked[name]
	return at, known, s.live, !s.lost.IsZero() && time.Since(s.lost) < cmp.Or(s.MaxStale, defaultMaxStale)
}

func (s *SecretStore) addRevoked(name string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live && at.After(s.revoked[name]) { // if it were not live, it could not be forgotten
		s.revoked[name] = at
	}
}

// Run keeps the revocations in memory until ctx ends. The error is about a field,
// or nil. There must be one call at a time.
func (s *SecretStore) Run(ctx context.Context) error {
	if err := s.checkFields(); err != nil {
		return err
	}
	wait, told := backoff.Backoff{First: time.Second}, map[string]time.Time{}
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
func (s *SecretStore) listAndWatch(ctx context.Context, told map[string]time.Time) error {
	version, listed, err := s.listRevoked(ctx)
	for err == nil {
		version, err = s.watchRevoked(ctx, version, listed, told)
		listed = nil
	}
	return err
}

// listRevoked replaces what is in memory.
func (s *SecretStore) listRevoked(ctx context.Context) (version string, listed []corev1.Secret, err error) {
	found := map[string]time.Time{}
	version, err = s.eachSecret(ctx, LabelRevoked, "", func(secret *corev1.Secret) error {
		found[secret.Name] = s.revokedTime(secret)
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
// again.
func (s *SecretStore) watchRevoked(ctx context.Context, version string, listed []corev1.Secret, told map[string]time.Time) (string, error) {
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
func (s *SecretStore) applyEvent(kind watch.EventType, secret *corev1.Secret, told map[string]time.Time) {
	s.mu.Lock()
	switch kind {
	case watch.Added, watch.Modified:
		s.revoked[secret.Name] = s.revokedTime(secret)
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
func (s *SecretStore) expelOnce(secret *corev1.Secret, told map[string]time.Time) {
	r, ok := s.parseRevoked(secret)
	if s.Expel == nil || !ok || !r.At.After(told[secret.Name]) {
		return
	}
	told[secret.Name] = r.At
	s.Expel(tunnel.Identity{Cluster: r.Cluster, Agent: r.Agent}, r.At)
}

// parseRevoked returns the record in a Secret, if the Secret's name agrees with it.
func (s *SecretStore) parseRevoked(secret *corev1.Secret) (r revokedRecord, ok bool) {
	err := json.Unmarshal(secret.Data[dataKey], &r)
	return r, err == nil && s.revokedName(tunnel.Identity{Cluster: r.Cluster, Agent: r.Agent}) == secret.Name
}

// revokedTime returns when it was revoked; zero if the Secret is damaged.
func (s *SecretStore) revokedTime(secret *corev1.Secret) time.Time {
	if r, ok := s.parseRevoked(secret); ok {
		return r.At
	}
	return time.Time{}
}

// revokedName hashes the identity, which may hold slashes and dots.
func (s *SecretStore) revokedName(id tunnel.Identity) string {
	return s.namePrefix() + "-revoked-" + hashName(id.URI().String())
}
