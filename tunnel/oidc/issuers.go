package oidc

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Registration says whose tokens an agent of a cluster joins with.
type Registration struct {
	// Cluster is the cluster that an agent with such a token is of. Required.
	Cluster string
	// Issuer is the token's claim iss, to the letter. Required. It need not be unique.
	Issuer string
	// Audience is the one audience of the token. It should name this installation, so that
	// tokens for another one are refused. Required.
	Audience string
	// Subjects are the ServiceAccounts that may join, such as
	// "system:serviceaccount:tunnel-agent:tunnel-agent", to the letter. Required.
	Subjects []string
	// Keys are the public keys of the issuer: a JWK set, as a Kubernetes API server has
	// at /openid/v1/jwks, or PEM. If nil, they are fetched from the issuer, whose URL is
	// then https, and fetched again when they change.
	Keys []byte
	// RootCAs are the authorities of the issuer's certificate. If nil, they are the
	// machine's. Not used with Keys.
	RootCAs *x509.CertPool
	// Dial connects to the issuer, for example through a proxy. If nil, a net.Dialer
	// does. Not used with Keys.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Issuers is a [tunnel.Enroller] for agents that show a ServiceAccount token of a
// registered cluster. Its methods are safe for concurrent use; its fields must not
// change after the first call. It keeps nothing for a token that no registered cluster
// has signed.
//
// The keys of an issuer are fetched when an agent needs them: at most once in ten
// seconds, and one at a time; at most 64 issuers are asked at once. They are used for
// five minutes, and for an hour if the issuer does not answer.
type Issuers struct {
	// Store remembers which key came first with a token. It should be the Server's: then
	// a token that was stolen is refused by all replicas. If nil, they are kept in memory.
	Store tunnel.Store

	once    sync.Once        // for the next two fields
	records tunnel.Records   // of Store, or of one in memory
	turns   chan struct{}    // has an element for each fetch that is under way
	now     func() time.Time // nil: time.Now

	mu         sync.RWMutex // guards the fields below
	registered map[string]*issuer
}

var _ tunnel.Enroller = (*Issuers)(nil)

// issuer is a Registration that was checked.
type issuer struct {
	Registration
	pinned keySet // nil: the keys are fetched

	mu    sync.Mutex // guards the fields below
	fetch fetchState
	used  map[string]usedToken // by the token's ID
}

// usedToken is a token that a key has enrolled with.
type usedToken struct {
	key  string
	ends time.Time // it can't be shown any more
}

func (s *Issuers) clock() time.Time {
	if s.now == nil {
		return time.Now()
	}
	return s.now()
}

// Register adds a cluster, or replaces its Registration. The error names the field that
// is wrong. Fields with slices must not change afterwards.
func (s *Issuers) Register(r Registration) error {
	i := &issuer{Registration: r, used: map[string]usedToken{}}
	switch {
	case r.Cluster == "":
		return errors.New("oidc: registration: field Cluster is required")
	case r.Issuer == "":
		return i.fieldError("Issuer", errors.New("it is required"))
	case r.Audience == "":
		return i.fieldError("Audience", errors.New("it is required"))
	case len(r.Subjects) == 0 || slices.Contains(r.Subjects, ""):
		return i.fieldError("Subjects", errors.New("it is required, and no entry may be empty"))
	}
	if r.Keys == nil {
		if err := checkIssuerURL(r.Issuer); err != nil {
			return i.fieldError("Issuer", fmt.Errorf("without Keys it is where the keys are: %w", err))
		}
	} else {
		var err error
		if i.pinned, err = parseKeys(r.Keys); err != nil {
			return i.fieldError("Keys", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registered == nil {
		s.registered = map[string]*issuer{}
	}
	s.registered[r.Cluster] = i
	return nil
}

func (i *issuer) fieldError(field string, err error) error {
	return fmt.Errorf("oidc: registration of %q: field %s: %w", i.Cluster, field, err)
}

// Remove forgets the cluster: no token of it counts any more. Agents that have joined
// keep their certificates; [tunnel.Server.RevokeCluster] ends them.
func (s *Issuers) Remove(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.registered, cluster)
}

// Enroll implements [tunnel.Enroller]. The error wraps one of this package's. The agent is
// told what is wrong with the form or the times of its token. What is wrong for a
// registration it is only told once a key of the cluster has signed the token, and only
// then Enroll returns the cluster with an error.
func (s *Issuers) Enroll(ctx context.Context, e tunnel.Enrollment) (cluster string, err error) {
	s.once.Do(func() {
		s.turns = make(chan struct{}, maxFetches)
		if s.records.Store = s.Store; s.Store == nil {
			s.records.Store = &tunnel.MemoryStore{}
		}
	})
	t, err := parseToken(e.Token)
	if err == nil {
		err = t.checkForm(s.clock())
	}
	if err != nil {
		return "", refusal(err)
	}
	i, err := s.verifyToken(ctx, e.Cluster, t)
	if err != nil {
		return "", err
	}
	if err := s.spendToken(ctx, i, t, e.Key); err != nil {
		return i.Cluster, refusal(err)
	}
	return i.Cluster, nil
}

// verifyToken returns the issuer that has signed the token, in the order of what the checks
// cost: a stranger's token is refused by the first ones.
func (s *Issuers) verifyToken(ctx context.Context, cluster string, t *token) (*issuer, error) {
	i, err := s.findIssuer(cluster, t.claims.Issuer)
	if err != nil {
		return nil, err
	}
	if err := t.checkClaims(&i.Registration); err != nil {
		return nil, err
	}
	return i, s.verifySignature(ctx, i, t)
}

// findIssuer returns that of the cluster; if it is "", the one that has such tokens.
func (s *Issuers) findIssuer(cluster, name string) (found *issuer, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if cluster != "" {
		found = s.registered[cluster]
	} else {
		for _, i := range s.registered {
			if i.Issuer == name && found != nil {
				return nil, ErrNoRegistration
			} else if i.Issuer == name {
				found = i
			}
		}
	}
	if found == nil {
		return nil, ErrNoRegistration
	}
	return found, nil
}

const (
	// maxUsed is how many tokens of a cluster may be in use at once: a cluster can't fill
	// the Store, and with it the state of the others.
	maxUsed = 1000
	// storeGrace is how long a Store keeps a token that has expired. Nobody has to be
	// told about one of these.
	storeGrace = 7 * 24 * time.Hour
)

var tokenIDs = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// id names the token in the Store. The signature does not count: anybody can make a
// second one from a signature of ECDSA.
func (t *token) id() string {
	sum := sha256.Sum256([]byte(t.signed))
	return tokenIDs.EncodeToString(sum[:10])
}

// spendToken returns ErrUsed if another key has enrolled with the token. It asks the
// Store once for each token.
func (s *Issuers) spendToken(ctx context.Context, i *issuer, t *token, key string) error {
	if key == "" {
		return fmt.Errorf("%w: field Key of the Enrollment is empty", ErrUnavailable)
	}
	id, now := t.id(), s.clock()
	holder, err := i.holderOf(id, now)
	if err != nil {
		return err
	}
	if holder == "" {
		if holder, err = s.claimToken(ctx, i.Cluster, t, key); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		i.remember(id, usedToken{holder, t.expires()})
	}
	if holder != key {
		return ErrUsed
	}
	return nil
}

// claimToken returns the key that came first with the token.
func (s *Issuers) claimToken(ctx context.Context, cluster string, t *token, key string) (string, error) {
	record := tunnel.Token{ID: t.id(), Cluster: cluster, Created: s.clock().UTC(), Expires: t.expires().Add(-storeGrace).UTC()}
	if err := s.records.AddToken(ctx, record); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	record, err := s.records.ClaimToken(ctx, record.ID, key)
	if err != nil || len(record.Keys) == 0 {
		return "", err
	}
	return record.Keys[0], nil
}

// holderOf returns the key that has enrolled with the token; "" if it is not known.
func (i *issuer) holderOf(id string, now time.Time) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if used, ok := i.used[id]; ok {
		return used.key, nil
	}
	if len(i.used) >= maxUsed {
		maps.DeleteFunc(i.used, func(_ string, used usedToken) bool { return now.After(used.ends) })
	}
	if len(i.used) >= maxUsed {
		return "", fmt.Errorf("%w: agents of the cluster have joined with %d tokens within an hour", ErrUnavailable, maxUsed)
	}
	return "", nil
}

func (i *issuer) remember(id string, used usedToken) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.used[id] = used
}
