package oidc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	wellKnown  = "/.well-known/openid-configuration"
	maxBody    = 256 << 10
	maxHops    = 3
	maxFetches = 64 // at once, of all issuers

	fetchTimeout = 5 * time.Second // of both requests together
	queueTimeout = 5 * time.Second // for one of the maxFetches

	// keysFresh is for how long keys are used without another fetch. A key that the
	// issuer has removed counts for no longer, unless the issuer is away.
	keysFresh = 5 * time.Minute
	// keysKept is for how long keys are used while the issuer is away.
	keysKept = time.Hour

	// Between two fetches from an issuer there are firstPause or more, whatever is
	// shown. Each failure doubles it, up to lastPause.
	firstPause = 10 * time.Second
	lastPause  = time.Minute
)

// fetchState is what is known about the keys of an issuer. The mutex of the issuer
// guards it.
type fetchState struct {
	keys     keySet
	fetched  time.Time // when keys came; zero: never
	next     time.Time // no fetch before that
	failures int       // since keys came
	err      error     // of the last fetch
	underway chan struct{}
}

// usable returns the keys, and whether they are fresh. It returns none if they are too
// old to be used.
func (i *issuer) usable(now time.Time) (keys keySet, fresh bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pinned != nil {
		return i.pinned, true
	}
	age := now.Sub(i.fetch.fetched)
	if i.fetch.fetched.IsZero() || age >= keysKept {
		return nil, false
	}
	return i.fetch.keys, age < keysFresh
}

// verifySignature returns an error unless a key of the issuer has signed the token.
// Keys are fetched if there are no fresh ones, or if the token is of none of them.
func (s *Issuers) verifySignature(ctx context.Context, i *issuer, t *token) error {
	keys, fresh := i.usable(s.clock())
	if fresh {
		err := keys.verify(t)
		// If the token names its key, and it is there, another fetch changes nothing.
		known := errors.Is(err, ErrSignature) && t.keyID() != ""
		if err == nil || known || i.pinned != nil {
			return err
		}
	}
	fetchErr := s.refreshKeys(ctx, i)
	if keys, _ = i.usable(s.clock()); keys == nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, fetchErr)
	}
	err := keys.verify(t)
	if err != nil && fetchErr != nil { // the keys may be others by now
		return fmt.Errorf("%w: %w", ErrUnavailable, fetchErr)
	}
	return err
}

// refreshKeys fetches the keys, or waits for a fetch that is under way. It does neither
// if the last one was a moment ago, and returns its error.
func (s *Issuers) refreshKeys(ctx context.Context, i *issuer) error {
	i.mu.Lock()
	if i.fetch.underway == nil {
		if s.clock().Before(i.fetch.next) {
			defer i.mu.Unlock()
			return i.fetch.err
		}
		i.fetch.underway = make(chan struct{})
		// It does not end with ctx: a client that leaves at once must not be able to
		// keep others from the keys. It ends by its timeouts.
		go s.fetchKeys(i)
	}
	underway := i.fetch.underway
	i.mu.Unlock()
	select {
	case <-underway:
	case <-ctx.Done():
		return ctx.Err()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetch.err
}

// fetchKeys fetches the keys of the issuer and keeps them, and tells those who wait.
func (s *Issuers) fetchKeys(i *issuer) {
	keys, err := s.fetchInTurn(i)
	i.mu.Lock()
	defer i.mu.Unlock()
	f, now := &i.fetch, s.clock()
	pause := firstPause
	if f.err = err; err != nil {
		pause = min(firstPause<<min(f.failures, 8), lastPause)
		f.failures++
	} else {
		f.keys, f.fetched, f.failures = keys, now, 0
	}
	f.next = now.Add(pause)
	close(f.underway)
	f.underway = nil
}

// fetchInTurn fetches keys when less than maxFetches others do.
func (s *Issuers) fetchInTurn(i *issuer) (keySet, error) {
	wait := time.NewTimer(queueTimeout)
	defer wait.Stop()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-wait.C:
		return nil, errors.New("too many issuers are asked for their keys at once")
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	return i.fetchNow(ctx)
}

// fetchNow asks the issuer where its keys are, and gets them.
func (i *issuer) fetchNow(ctx context.Context) (keySet, error) {
	transport := &http.Transport{
		DialContext:            i.Dial,
		TLSClientConfig:        &tls.Config{RootCAs: i.RootCAs, MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: 16 << 10,
		DisableCompression:     true, // 256 KiB are 256 KiB
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: stayOnHost}
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	text, err := getBody(ctx, client, strings.TrimSuffix(i.Issuer, "/")+wellKnown)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(text, &document) != nil {
		return nil, errors.New("the issuer's " + wellKnown + " is not JSON")
	}
	if document.Issuer != i.Issuer {
		return nil, errors.New("the issuer's " + wellKnown + " is of another issuer")
	}
	if err := checkKeysURL(document.Keys, i.Issuer); err != nil {
		return nil, err
	}
	if text, err = getBody(ctx, client, document.Keys); err != nil {
		return nil, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("the issuer's keys: %w", err)
	}
	return keys, nil
}

// stayOnHost keeps an issuer from leading the server to anything else that it reaches.
func stayOnHost(request *http.Request, via []*http.Request) error {
	if len(via) > maxHops {
		return errors.New("too many redirects")
	}
	if to := request.URL; to.Scheme != "https" || to.Host != via[0].URL.Host {
		return errors.New("a redirect to another host, or away from https")
	}
	return nil
}

// checkKeysURL returns an error unless the keys are on the issuer's host.
func checkKeysURL(text, issuer string) error {
	if err := checkIssuerURL(text); err != nil {
		return fmt.Errorf("the issuer's jwks_uri: %w", err)
	}
	keys, _ := url.Parse(text)
	if of, err := url.Parse(issuer); err != nil || keys.Host != of.Host {
		return errors.New("the issuer's jwks_uri is on another host: register its keys instead")
	}
	return nil
}

// checkIssuerURL returns an error that does not quote the URL.
func checkIssuerURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") {
		return errors.New("want a URL https://HOST with no user, query or fragment")
	}
	return nil
}

// getBody returns what is at the URL.
func getBody(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, application/jwk-set+json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", url, response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", url, err)
	case len(text) > maxBody:
		return nil, fmt.Errorf("%s: more than %d bytes", url, maxBody)
	}
	return text, nil
}
