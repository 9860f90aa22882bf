package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/tunnel"
)

// SecretStore is a [tunnel.Store] in Secrets, which any number of servers
// share: one Secret for each token and for each revocation. Neither their names nor
// their data are confidential. They are Secrets because few may write Secrets:
// a user that can write them can have a token used again, and let a revoked agent in.
// Its methods are safe for concurrent use; its fields must not change after the
// first call.
//
// A token is claimed by an update with the resourceVersion at which it was read: of
// several servers one succeeds, and the others read it again. Tokens that
// expired a week ago are deleted when a new one is added, at most once an hour.
// Revocations stay; one that is older than the life of an agent's certificate, and of
// any invitation for the cluster, may be deleted by hand.
//
// The server looks up a revocation each time an agent connects. [SecretStore.Run]
// keeps them in memory; without it each look-up is a request. Tokens are read and
// written when an agent enrols, at most four at once, so that look-ups of
// revocations by the same Client do not wait behind a crowd that enrols.
//
// It needs the right to get, list, watch, create, update and delete secrets in
// Namespace. RBAC can't select Secrets by labels: give it a namespace of its own.
type SecretStore struct {
	// Client reaches the API server. Required. An enrolment takes two requests, or
	// four without Run: client-go's default limit of 5 a second (rest.Config.QPS)
	// is too low when many agents enrol at once.
	Client kubernetes.Interface
	// Namespace holds the Secrets. Required.
	Namespace string
	// Prefix begins the names of the Secrets and is the value of their labels: two
	// stores in one namespace need different ones. Empty means "causeway".
	Prefix string
	// MaxStale is how long, after Run has lost its watch, an agent that is not known
	// to be revoked is let in if the API server does not answer. Zero means 5
	// minutes; if negative, no such agent is let in.
	MaxStale time.Duration
	// Expel, if not nil, is called by Run once for every revocation, those of other
	// servers included. It should be [tunnel.Server.Expel], which ends the sessions
	// here. If nil, such a session lives until its agent reconnects or renews its
	// certificate.
	Expel func(id tunnel.Identity, at time.Time)
	// Error, if not nil, is called when Run can't watch the Secrets. The watch is
	// tried again. It must not block.
	Error func(error)

	mu        sync.Mutex           // guards the fields below
	revoked   map[string]time.Time // by the Secret's name; zero: the Secret is damaged
	live      bool                 // a watch keeps revoked up to date
	lost      time.Time            // when live ended; zero if it never began
	lastSweep time.Time            // when tokens were last looked through, by Token.Created
	turns     chan struct{}        // holds one for each call about a token that is under way
}

var _ tunnel.Store = (*SecretStore)(nil)

// Labels of the Secrets; the value is the store's Prefix.
const (
	LabelToken   = "causewayproject.github.io/tunnel-token"
	LabelRevoked = "causewayproject.github.io/tunnel-revoked"
	// labelCluster is on tokens; its value is a digest of the cluster. Those of older
	// versions do not have it.
	labelCluster = "causewayproject.github.io/tunnel-cluster"
)

const (
	tokenGrace = 7 * 24 * time.Hour // as tunnel.Store says
	sweepEvery = time.Hour
	pageSize   = 500
	writeTries = 100 // of others' writes that may come between
	// tokenCalls is how many calls about tokens may have requests in the Client's
	// queue at once. Another request waits behind at most so many: a second by
	// client-go's default limit.
	tokenCalls = 4

	dataKey = "value"
)

// tokenRecord is a token in a Secret. The first key has a field of its own, since older
// versions wrote only that: to them a token with a key is used.
type tokenRecord struct {
	ID       string    `json:"id"`
	Cluster  string    `json:"cluster"`
	Agents   int       `json:"agents,omitempty"`
	After    time.Time `json:"after,omitzero"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
	Key      string    `json:"key,omitempty"`
	MoreKeys []string  `json:"moreKeys,omitempty"`
}

func newTokenRecord(t tunnel.Token) tokenRecord {
	r := tokenRecord{ID: t.ID, Cluster: t.Cluster, Agents: t.Agents, After: t.After, Created: t.Created, Expires: t.Expires}
	if len(t.Keys) > 0 {
		r.Key, r.MoreKeys = t.Keys[0], t.Keys[1:]
	}
	return r
}

func (r tokenRecord) token() tunnel.Token {
	t := tunnel.Token{ID: r.ID, Cluster: r.Cluster, Agents: r.Agents, After: r.After, Created: r.Created, Expires: r.Expires}
	if r.Key != "" {
		t.Keys = append([]string{r.Key}, r.MoreKeys...)
	}
	return t
}

var errNoToken = fmt.Errorf("tunnel/kubernetes: token: %w", fs.ErrNotExist)

// AddToken implements [tunnel.Store].
func (s *SecretStore) AddToken(ctx context.Context, t tunnel.Token) error {
	if err := s.checkFields(); err != nil {
		return err
	}
	if t.ID == "" || len(t.Keys) > 0 {
		return errors.New("tunnel/kubernetes: token: not a new one")
	}
	end, err := s.awaitTurn(ctx)
	if err != nil {
		return wrapError("add token", err)
	}
	defer end()
	if s.sweepDue(t.Created) {
		if err := s.sweepTokens(ctx, t.Created); err != nil {
			s.reportError(wrapError("look for tokens that ended", err)) // the next hour will do
		}
	}
	secret, err := s.newSecret(s.tokenName(t.ID), LabelToken, newTokenRecord(t))
	if err == nil {
		secret.Labels[labelCluster] = clusterDigest(t.Cluster)
		_, err = s.secretClient().Create(ctx, secret, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("tunnel/kubernetes: token: %w", fs.ErrExist)
	}
	return wrapError("add token", err)
}

// awaitTurn waits until a call about a token may begin. The caller calls end after
// it.
func (s *SecretStore) awaitTurn(ctx context.Context) (end func(), err error) {
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

func (s *SecretStore) readToken(ctx context.Context, id string) (tunnel.Token, *corev1.Secret, error) {
	secret, err := s.secretClient().Get(ctx, s.tokenName(id), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return tunnel.Token{}, nil, errNoToken
	}
	if err != nil {
		return tunnel.Token{}, nil, wrapError("read token", err)
	}
	t, err := parseToken(secret)
	if err == nil && t.ID != id {
		err = errDamaged(secret)
	}
	return t, secret, err
}

// ClaimToken implements [tunnel.Store].
func (s *SecretStore) ClaimToken(ctx context.Context, id, key string) (tunnel.Token, error) {
	if err := s.checkFields(); err != nil {
		return tunnel.Token{}, err
	}
	end, err := s.awaitTurn(ctx)
	if err != nil {
		return tunnel.Token{}, wrapError("claim token", err)
	}
	defer end()
	var t tunnel.Token
	err = retryConflicts(ctx, func() error {
		got, secret, err := s.readToken(ctx, id)
		t = got
		if err != nil || len(t.Keys) >= max(t.Agents, 1) || slices.Contains(t.Keys, key) {
			return err
		}
		t.Keys = append(t.Keys, key)
		if secret.Data[dataKey], err = json.Marshal(newTokenRecord(t)); err == nil {
			_, err = s.secretClient().Update(ctx, secret, metav1.UpdateOptions{})
		}
		return wrapError("claim token", err)
	})
	if err != nil {
		return tunnel.Token{}, err
	}
	return t, nil
}

// retryConflicts calls write again while somebody else's write came first. It waits a
// random time before, since the other servers try again, too.
func retryConflicts(ctx context.Context, write func() error) (err error) {
	wait := backoff.Backoff{First: 5 * time.Millisecond, Max: 100 * time.Millisecond}
	for range writeTries {
		err = write()
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-time.After(wait.Next(0)):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// Tokens implements [tunnel.Store]. A token whose Secret is damaged is left out.
func (s *SecretStore) Tokens(ctx context.Context, cluster string) (all []tunnel.Token, err error) {
	if err := s.checkFields(); err != nil {
		return nil, err
	}
	end, err := s.awaitTurn(ctx)
	if err != nil {
		return nil, wrapError("list tokens", err)
	}
	defer end()
	for _, which := range []string{labelCluster + "=" + clusterDigest(cluster), "!" + labelCluster} {
		_, err := s.eachSecret(ctx, LabelToken, which, func(secret *corev1.Secret) error {
			if t, err := parseToken(secret); err == nil && t.Cluster == cluster && s.tokenName(t.ID) == secret.Name {
				all = append(all, t)
			}
			return nil
		})
		if err != nil {
			return nil, wrapError("list tokens", err)
		}
	}
	return all, nil
}

// RemoveToken implements [tunnel.Store].
func (s *SecretStore) RemoveToken(ctx context.Context, id string) error {
	if err := s.checkFields(); err != nil {
		return err
	}
	end, err := s.awaitTurn(ctx)
	if err != nil {
		return wrapError("remove token", err)
	}
	defer end()
	err = s.secretClient().Delete(ctx, s.tokenName(id), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrapError("remove token", err)
}

// sweepDue reports whether it is time to look for old tokens.
func (s *SecretStore) sweepDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lastSweep.IsZero() && now.Sub(s.lastSweep) < sweepEvery {
		return false
	}
	s.lastSweep = now
	return true
}

// sweepTokens deletes the tokens that expired long ago. A token that can't be read
// stays.
func (s *SecretStore) sweepTokens(ctx context.Context, now time.Time) error {
	_, err := s.eachSecret(ctx, LabelToken, "", func(secret *corev1.Secret) error {
		if t, err := parseToken(secret); err != nil || now.Sub(t.Expires) < tokenGrace {
			return nil
		}
		err := s.secretClient().Delete(ctx, secret.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &secret.UID},
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // another server has done it
		}
		return err
	})
	return err
}

// eachSecret calls f with the Secrets that have the label, and that the other selector
// matches if it is not empty. It returns the version of the list.
func (s *SecretStore) eachSecret(ctx context.Context, label, other string, f func(*corev1.Secret) error) (version string, err error) {
	options := metav1.ListOptions{LabelSelector: strings.TrimSuffix(label+"="+s.namePrefix()+","+other, ","), Limit: pageSize}
	for {
		page, err := s.secretClient().List(ctx, options)
		if err != nil {
			return "", err
		}
		for n := range page.Items {
			if err := f(&page.Items[n]); err != nil {
				return "", err
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return page.ResourceVersion, nil
		}
	}
}

func parseToken(secret *corev1.Secret) (tunnel.Token, error) {
	var r tokenRecord
	if err := json.Unmarshal(secret.Data[dataKey], &r); err != nil {
		return tunnel.Token{}, errDamaged(secret)
	}
	return r.token(), nil
}

// errDamaged hides the cause, which quotes the data.
func errDamaged(secret *corev1.Secret) error {
	return fmt.Errorf("tunnel/kubernetes: the Secret %s/%s is damaged", secret.Namespace, secret.Name)
}

func (s *SecretStore) newSecret(name, label string, value any) (*corev1.Secret, error) {
	text, err := json.Marshal(value)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace, Labels: map[string]string{label: s.namePrefix()}},
		Data:       map[string][]byte{dataKey: text},
	}, err
}

// tokenName hashes the id, which may be any text and is confidential.
func (s *SecretStore) tokenName(id string) string { return s.namePrefix() + "-token-" + hashName(id) }

// clusterDigest is the value of a label: at most 63 characters.
func clusterDigest(cluster string) string { return hashName(cluster)[:40] }

func hashName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (s *SecretStore) secretClient() coreclient.SecretInterface {
	return s.Client.CoreV1().Secrets(s.Namespace)
}

func (s *SecretStore) namePrefix() string { return cmp.Or(s.Prefix, "causeway") }

func (s *SecretStore) checkFields() error {
	switch {
	case s.Client == nil:
		return requiredField("secret store", "Client")
	case s.Namespace == "":
		return requiredField("secret store", "Namespace")
	}
	return nil
}

func (s *SecretStore) reportError(err error) {
	if s.Error != nil {
		s.Error(err)
	}
}
