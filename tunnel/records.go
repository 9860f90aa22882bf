package tunnel

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
)

// Records are the tokens and revocations in a [Store]: what it means to claim one, to
// revoke, and when they are forgotten. A Server has its own; use another one only for
// tokens that it does not know.
type Records struct {
	// Store keeps them. Required.
	Store Store

	mu    sync.Mutex // guards the field below
	swept time.Time  // when tokens were last looked through, by Token.Created
}

// Token is the record of a token in a [Store]. It contains no secret: nobody can
// make a token from it without the key of an [Authority].
type Token struct {
	// ID names the token: 16 of the characters a-z and 2-7.
	ID string `json:"id,omitempty"`
	// Cluster is the cluster for which the token enrols agents.
	Cluster string `json:"cluster"`
	// Agents is how many agents may enrol with the token. Zero means one.
	Agents int `json:"agents,omitempty"`
	// After is when all agents of the cluster were revoked before the token was made,
	// the last time; zero if they never were. A later revocation makes it void.
	After time.Time `json:"after,omitzero"`
	// Created is when the token was made.
	Created time.Time `json:"created"`
	// Expires is when the token expires, by the server's clock.
	Expires time.Time `json:"expires"`
	// Keys are the hex fingerprints of the keys that were enrolled with the token.
	Keys []string `json:"-"`
}

// agentsLeft returns how many more agents may enrol with the token.
func (t Token) agentsLeft() int { return max(max(t.Agents, 1)-len(t.Keys), 0) }

const (
	// tokenGrace is how long a token is kept after it has expired, so that an agent that
	// uses it learns that it expired.
	tokenGrace = 7 * 24 * time.Hour
	sweepEvery = time.Hour
	writeTries = 100 // of others' writes that may come between
)

// tokenRecord is the Data of a token. The first key has a field of its own, since older
// versions wrote only that: to them a token with a key is used.
type tokenRecord struct {
	Token
	Key      string   `json:"key,omitempty"`
	MoreKeys []string `json:"moreKeys,omitempty"`
}

func (t Token) record() (Record, error) {
	r := tokenRecord{Token: t}
	if len(t.Keys) > 0 {
		r.Key, r.MoreKeys = t.Keys[0], t.Keys[1:]
	}
	data, err := json.Marshal(r)
	return Record{Kind: KindToken, Name: t.ID, Cluster: t.Cluster, Data: data}, err
}

func parseToken(r Record) (Token, error) {
	var t tokenRecord
	if json.Unmarshal(r.Data, &t) != nil || t.ID != r.Name {
		return Token{}, errors.New("tunnel: store: the record of the token is damaged") // the cause quotes it
	}
	if t.Key != "" {
		t.Keys = append([]string{t.Key}, t.MoreKeys...)
	}
	return t.Token, nil
}

// AddToken adds a new token. Once an hour, it also removes tokens that expired a week or
// longer before t.Created.
func (s *Records) AddToken(ctx context.Context, t Token) error {
	if t.ID == "" || len(t.Keys) > 0 {
		return errors.New("tunnel: store: not a new token")
	}
	r, err := t.record()
	if err == nil {
		err = s.Store.Create(ctx, r)
	}
	if err == nil {
		s.sweepTokens(ctx, t.Created)
	}
	return err
}

// sweepTokens removes the tokens that expired long ago, if it is time. One that can't be
// read stays; what fails is done the next hour.
func (s *Records) sweepTokens(ctx context.Context, now time.Time) {
	s.mu.Lock()
	due := s.swept.IsZero() || now.Sub(s.swept) >= sweepEvery
	if due {
		s.swept = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	all, _ := s.Store.List(ctx, KindToken, "")
	for _, r := range all {
		if t, err := parseToken(r); err == nil && now.Sub(t.Expires) >= tokenGrace && ctx.Err() == nil {
			_ = s.Store.Delete(ctx, r)
		}
	}
}

// ClaimToken atomically adds the key to the token's Keys, unless it is there or there are
// as many as Agents already, and returns the token as it then is. If there is no such
// token, the error is fs.ErrNotExist.
func (s *Records) ClaimToken(ctx context.Context, id, key string) (t Token, err error) {
	err = s.update(ctx, KindToken, id, func(old Record) (r Record, err error) {
		if old.Data == nil {
			return r, errNoRecord
		}
		if t, err = parseToken(old); err != nil || t.agentsLeft() == 0 || slices.Contains(t.Keys, key) {
			return r, err
		}
		t.Keys = append(t.Keys, key)
		return t.record()
	})
	if err != nil {
		return Token{}, err
	}
	return t, nil
}

// Put sets the Data of a record, whether or not there is one.
func (s *Records) Put(ctx context.Context, r Record) error {
	return s.update(ctx, r.Kind, r.Name, func(Record) (Record, error) { return r, nil })
}

// update writes what change returns, if that has Data. change gets a record without Data if
// there is none. While somebody else's write comes first, it is called again, after a random
// time: the other servers try again, too.
func (s *Records) update(ctx context.Context, kind Kind, name string, change func(old Record) (Record, error)) (err error) {
	wait := backoff.Backoff{First: 5 * time.Millisecond, Max: 100 * time.Millisecond}
	for range writeTries {
		if err = s.updateOnce(ctx, kind, name, change); !errors.Is(err, ErrConflict) {
			return err
		}
		if !backoff.Sleep(ctx, wait.Next(0)) {
			return err
		}
	}
	return err
}

func (s *Records) updateOnce(ctx context.Context, kind Kind, name string, change func(old Record) (Record, error)) error {
	old, err := s.Store.Get(ctx, kind, name)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		old, err = Record{}, nil
	}
	var r Record
	if err == nil {
		r, err = change(old)
	}
	switch {
	case err != nil || r.Data == nil:
		return err
	case !missing:
		r.Version = old.Version
		return s.Store.Replace(ctx, r)
	}
	if err = s.Store.Create(ctx, r); errors.Is(err, fs.ErrExist) {
		return ErrConflict
	}
	return err
}

// Tokens returns the cluster's tokens, in any order: all that were not removed yet. One
// whose record is damaged is left out.
func (s *Records) Tokens(ctx context.Context, cluster string) (all []Token, err error) {
	found, err := s.Store.List(ctx, KindToken, cluster)
	for _, r := range found {
		if t, err := parseToken(r); err == nil && t.Cluster == cluster {
			all = append(all, t)
		}
	}
	return all, err
}

// removeToken removes a token. There is no error if there is none.
func (s *Records) removeToken(ctx context.Context, id string) error {
	return s.Store.Delete(ctx, Record{Kind: KindToken, Name: id})
}

// revocation is the Data of a revocation.
type revocation struct {
	Cluster string    `json:"cluster"`
	Agent   string    `json:"agent,omitempty"`
	At      time.Time `json:"at"`
	Until   time.Time `json:"until,omitzero"` // it refuses nothing after that; zero: for good
}

// parseRevocation returns the revocation in a record. If that is damaged, the error says so.
func parseRevocation(r Record) (id Identity, v revocation, err error) {
	if json.Unmarshal(r.Data, &v) == nil {
		id = Identity{Cluster: v.Cluster, Agent: v.Agent}
	}
	if hashName(id) != r.Name || v.At.IsZero() {
		return Identity{}, revocation{}, fmt.Errorf("tunnel: store: the record %s of a revocation is damaged", r.Name)
	}
	return id, v, nil
}

// hashName is the name of a revocation. It is a hash, since an identity may contain
// slashes and dots.
func hashName(id Identity) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(id.URI().String())))
}

// Revoke records that the agent was revoked, for good: an agent that enrols with another
// key gets another Identity. If id has no Agent, it records that all agents of the cluster
// were, and returns the time of that: now, or a millisecond after the latest one that is
// recorded if that is later. All times are whole milliseconds. What it returns for an agent
// means nothing.
func (s *Records) Revoke(ctx context.Context, id Identity, now time.Time) (at time.Time, err error) {
	return s.revokeUntil(ctx, id, now, time.Time{})
}

// revokeUntil is Revoke for a revocation that refuses nothing after that time.
func (s *Records) revokeUntil(ctx context.Context, id Identity, now, until time.Time) (at time.Time, err error) {
	err = s.update(ctx, KindRevoked, hashName(id), func(old Record) (Record, error) {
		at = now
		if _, v, err := parseRevocation(old); err == nil && !now.After(v.At) { // a damaged one is replaced
			at = v.At.Add(time.Millisecond)
		}
		if id.Agent != "" && old.Data != nil {
			return Record{}, nil
		}
		data, err := json.Marshal(revocation{id.Cluster, id.Agent, at, until})
		return Record{Kind: KindRevoked, Name: hashName(id), Cluster: id.Cluster, Data: data}, err
	})
	return at, err
}

// ended returns the clusters that are revoked for a time, and forgets those whose time is
// over, if they were revoked longer ago than life.
func (s *Records) ended(ctx context.Context, now time.Time, life time.Duration) (clusters []string, err error) {
	all, err := s.Store.List(ctx, KindRevoked, "")
	for _, r := range all {
		id, v, wrong := parseRevocation(r)
		switch {
		case wrong != nil || v.Until.IsZero():
		case now.Before(v.Until) || now.Sub(v.At) < life:
			clusters = append(clusters, id.Cluster)
		default:
			if gone := s.forget(ctx, r, id.Cluster, v.At); !errors.Is(gone, ErrConflict) {
				err = errors.Join(err, gone)
			}
		}
	}
	return clusters, err
}

// forget removes a revocation, and before it the tokens that only it refuses.
func (s *Records) forget(ctx context.Context, r Record, cluster string, at time.Time) error {
	tokens, err := s.Tokens(ctx, cluster)
	for _, t := range tokens {
		if t.After.Before(at) {
			err = errors.Join(err, s.removeToken(ctx, t.ID))
		}
	}
	if err != nil {
		return err
	}
	return s.Store.Delete(ctx, r)
}

// Revoked returns the latest time that Revoke recorded for exactly this Identity; zero if
// there is none. For an agent it may return any other time that is not zero.
func (s *Records) Revoked(ctx context.Context, id Identity) (at time.Time, err error) {
	r, err := s.Store.Get(ctx, KindRevoked, hashName(id))
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil
	}
	if err != nil {
		return at, err
	}
	_, v, err := parseRevocation(r)
	return v.At, err
}
