package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/tunnel"
)

// minWatch is how long a watch without events lasts at least: a shorter one is an error.
const minWatch = time.Second

// memory is what a watch has shown of the Secrets with one label. The lock of SecretStore
// guards it.
type memory struct {
	kind    tunnel.Kind              // that is watched
	records map[string]tunnel.Record // by the Secret's name
	// payloads are those of a cluster: there may be many clusters.
	payloads map[string]map[string]tunnel.Record
	live     bool      // a watch keeps it up to date; if false, it is
	lost     time.Time // when live ended; zero if it never began
}

// set keeps a record; without Data it forgets it.
func (m *memory) set(secret string, r tunnel.Record) {
	old := m.records[secret]
	if delete(m.records, secret); old.Kind == tunnel.KindPayload {
		delete(m.payloads[old.Cluster], secret)
	}
	if r.Data == nil {
		return
	}
	m.records[secret] = r
	if r.Kind == tunnel.KindPayload {
		if m.payloads[r.Cluster] == nil {
			m.payloads[r.Cluster] = map[string]tunnel.Record{}
		}
		m.payloads[r.Cluster][secret] = r
	}
}

func (m *memory) isRecent(most time.Duration) bool {
	return !m.lost.IsZero() && time.Since(m.lost) < cmp.Or(most, defaultMaxStale)
}

// isForGood reports whether the record is an agent's revocation, which can't be undone.
func isForGood(r tunnel.Record) bool {
	var about struct{ Agent string }
	return r.Kind == tunnel.KindRevoked && json.Unmarshal(r.Data, &about) == nil && about.Agent != ""
}

// lookUp returns the record in memory, and what else memory says. A token's is never there.
func (s *SecretStore) lookUp(kind tunnel.Kind, name string) (r tunnel.Record, known bool, about memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memory[labelOf(kind)]
	if m == nil || kind == tunnel.KindToken {
		return r, false, about
	}
	r, known = m.records[s.secretName(kind, name)]
	r.Name = name
	return r, known, memory{live: m.isUsed(), lost: m.lost}
}

// isUsed reports whether no request is needed.
func (m *memory) isUsed() bool { return m.live || m.kind != tunnel.KindRevoked && !m.lost.IsZero() }

// listMemory returns the records in memory, if they are used.
func (s *SecretStore) listMemory(kind tunnel.Kind, of string) (all []tunnel.Record, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memory[labelOf(kind)]
	if m == nil || kind == tunnel.KindToken || !m.isUsed() {
		return nil, false
	}
	from := m.records
	if kind == tunnel.KindPayload && of != "" {
		from = m.payloads[of]
	}
	for _, r := range from {
		if r.Kind == kind && r.Name != "" && r.IsOf(of) {
			all = append(all, r)
		}
	}
	return all, true
}

// remember keeps in memory what the API server has of a record, if memory is used: the watch
// may be late. It asks if written is nil. A Secret without a name is one that is gone.
func (s *SecretStore) remember(ctx context.Context, r tunnel.Record, written *corev1.Secret) {
	s.mu.Lock()
	m := s.memory[labelOf(r.Kind)]
	used := m != nil && r.Kind != tunnel.KindToken && m.isUsed()
	s.mu.Unlock()
	if !used {
		return
	}
	name, err := s.secretName(r.Kind, r.Name), error(nil)
	if written == nil {
		written, err = s.secretClient().Get(ctx, name, metav1.GetOptions{})
	}
	var now tunnel.Record
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return
	case written.Name != "":
		now = s.readSecret(labelOf(r.Kind), written)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.set(name, now)
}

// Watch implements [tunnel.Store]. There must be one call at a time for revocations, and
// one for payloads or values, which it has in memory both.
func (s *SecretStore) Watch(ctx context.Context, kind tunnel.Kind, changed func(tunnel.Record)) error {
	if err := s.checkFields(); err != nil {
		return err
	}
	w := &secretWatch{SecretStore: s, kind: kind, changed: changed, told: map[string]tunnel.Record{}}
	wait := backoff.Backoff{First: time.Second}
	for {
		began := time.Now()
		err := w.listAndWatch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		reportError(s.Error, wrapError("watch "+string(kind), err))
		if !backoff.Sleep(ctx, wait.Next(time.Since(began))) {
			return nil
		}
	}
}

// secretWatch is a call of Watch.
type secretWatch struct {
	*SecretStore
	kind    tunnel.Kind
	changed func(tunnel.Record)
	told    map[string]tunnel.Record // what changed was called with, by the Secrets' names
}

// listAndWatch lists, and watches from there until an error.
//
// It is not a Reflector of client-go: Get has to know whether a watch is open,
// and Error that one has ended, and a Reflector tells neither.
func (w *secretWatch) listAndWatch(ctx context.Context) error {
	m := &memory{kind: w.kind, records: map[string]tunnel.Record{}, payloads: map[string]map[string]tunnel.Record{}}
	version, err := w.eachSecret(ctx, labelOf(w.kind), "", func(secret *corev1.Secret) {
		m.set(secret.Name, w.readSecret(labelOf(w.kind), secret))
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	if old := w.memory[labelOf(w.kind)]; old != nil {
		m.lost = old.lost
	}
	if w.memory == nil {
		w.memory = map[string]*memory{}
	}
	w.memory[labelOf(w.kind)] = m
	listed := maps.Clone(m.records)
	w.mu.Unlock()
	for err == nil {
		version, err = w.watchOnce(ctx, m, version, listed)
		listed = nil
	}
	return err
}

// watchOnce keeps memory up to date until the watch ends, and returns the version at which
// the next watch begins. After an error the Secrets are listed again.
func (w *secretWatch) watchOnce(ctx context.Context, m *memory, version string, listed map[string]tunnel.Record) (string, error) {
	began := time.Now()
	events, err := w.secretClient().Watch(ctx, metav1.ListOptions{
		LabelSelector: labelOf(w.kind) + "=" + w.namePrefix(), ResourceVersion: version, AllowWatchBookmarks: true,
	})
	if err != nil {
		return "", err
	}
	defer events.Stop()
	w.setLive(m, true)
	defer w.setLive(m, false)
	if listed != nil {
		w.tellListed(listed)
	}
	seen := 0
	for e := range events.ResultChan() {
		secret, ok := e.Object.(*corev1.Secret)
		if e.Type == watch.Error || !ok {
			return "", apierrors.FromObject(e.Object)
		}
		seen, version = seen+1, secret.ResourceVersion
		if e.Type == watch.Bookmark {
			continue
		}
		r := w.readSecret(labelOf(w.kind), secret)
		if e.Type == watch.Deleted {
			r.Data = nil
		}
		w.mu.Lock()
		m.set(secret.Name, r)
		w.mu.Unlock()
		w.tell(secret.Name, r)
	}
	if seen == 0 && time.Since(began) < minWatch {
		return "", errors.New("the watch ended at once")
	}
	return version, ctx.Err()
}

// tellListed tells of what there is, and of what has gone.
func (w *secretWatch) tellListed(listed map[string]tunnel.Record) {
	for name, r := range w.told {
		if _, ok := listed[name]; !ok {
			r.Data = nil
			w.tell(name, r)
		}
	}
	for name, r := range listed {
		w.tell(name, r)
	}
}

// tell calls changed, once for each change of a record.
func (w *secretWatch) tell(secret string, r tunnel.Record) {
	was, known := w.told[secret]
	switch {
	case r.Kind != w.kind || r.Name == "" || known && r.Data != nil && bytes.Equal(was.Data, r.Data):
		return
	case r.Data == nil:
		delete(w.told, secret)
	default:
		w.told[secret] = r
	}
	w.changed(r)
}

// setLive sets whether memory is up to date.
func (s *SecretStore) setLive(m *memory, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.live && !yes {
		m.lost = time.Now()
	}
	m.live = yes
}
