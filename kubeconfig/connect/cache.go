package connect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/kubeconfig"
)

// Cache holds the Clients of many clusters, one for each kubeconfig Secret. It
// suits a controller that looks after hundreds of clusters and reads their
// Secrets from an informer anyway. The zero value works. It is safe for
// concurrent use, and must not be copied.
//
//	client, release, err := cache.Get(secret)
//	if err != nil {
//		return err
//	}
//	defer release()
//
// Get dials nothing, and makes a Client only if the Cache has no Client for the Secret yet. Call it in
// each reconciliation, with the Secret as it is then: if the Secret has changed,
// the Client takes the new kubeconfig, for all that was ever made of it (see
// [Client]). A Secret that was deleted and made again (it has
// another UID) may be of another cluster, and gets another Client.
type Cache struct {
	// Options returns those of the Client for a Secret, such as a Dialer of a
	// tunnel to that cluster. It is called once
	// for each Client, by several goroutines at once. If nil, or if it returns
	// nil, the zero value.
	Options func(secret *corev1.Secret) *Options
	// Size is how many Clients are kept. Of the unused ones, the one whose
	// last Get is the oldest is closed first. A Client in use is not closed: if more than
	// Size are in use, all of them are kept. If zero, 1000.
	Size int

	mu      sync.Mutex // guards the fields below
	entries map[types.NamespacedName]*cacheEntry
	asked   int64 // counts calls of Get
	closed  bool
}

const defaultCacheSize = 1000

// cacheEntry is a Secret's Client.
type cacheEntry struct {
	uid types.UID

	// Guarded by the Cache's mu.
	newest  string // the newest resourceVersion of the Secret that Get has seen
	users   int
	asked   int64 // when Get was last called
	dropped bool  // it is closed when nobody uses it any more

	mu     sync.Mutex // guards the fields below
	client *Client    // nil: none could be made yet
	value  []byte     // the kubeconfig
}

// Get returns the Client of a kubeconfig Secret ([kubeconfig.Secret]), and what
// to call when it is not used any more; a second call does nothing. The Client
// is the Cache's to close. The Secret is only read.
//
// If the Secret holds no kubeconfig that can be used, or one that names a program or a
// file ([kubeconfig.FromSecret]), Get returns an error. A Client that the Cache already has for the Secret keeps the last good kubeconfig for
// its users. A Secret that is older than the newest that Get has seen, by its
// resourceVersion, changes nothing, whatever its UID. If there is no Client yet,
// it is an error.
func (c *Cache) Get(secret *corev1.Secret) (client *Client, release func(), err error) {
	if secret == nil {
		return nil, nil, errors.New("connect: the Secret is nil")
	}
	key := types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}
	e, replaced, err := c.acquire(key, secret)
	closeClient(replaced)
	if err != nil {
		return nil, nil, err
	}
	done := sync.OnceFunc(func() { c.release(key, e) })
	defer func() {
		if client == nil { // Options may have panicked
			done()
		}
	}()
	if err := c.update(e, secret); err != nil {
		return nil, nil, err
	}
	return e.client, done, nil
}

// Forget drops the Client of a Secret that was deleted. It is closed when its
// last user has released it, which may be at once.
func (c *Cache) Forget(namespace, name string) {
	c.mu.Lock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	unused := c.dropLocked(key, c.entries[key])
	c.mu.Unlock()
	closeClient(unused)
}

// Close closes all Clients, also those in use. From then on Get fails with
// net.ErrClosed. It returns nil.
func (c *Cache) Close() error {
	c.mu.Lock()
	entries := c.entries
	c.entries, c.closed = nil, true
	for _, e := range entries {
		e.dropped = true // also of a Get that is under way
	}
	c.mu.Unlock()
	for _, e := range entries {
		closeClient(e)
	}
	return nil
}

// acquire counts a user of the entry for key. It may return an entry of another
// UID, which the caller closes.
func (c *Cache) acquire(key types.NamespacedName, secret *corev1.Secret) (e, replaced *cacheEntry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, errClosed
	}
	e = c.entries[key]
	stale := e != nil && clusterapi.IsOlder(secret.ResourceVersion, e.newest)
	if e != nil && e.uid != secret.UID && !stale {
		replaced = c.dropLocked(key, e)
		e = nil
	}
	if e == nil {
		e = &cacheEntry{uid: secret.UID}
		if c.entries == nil {
			c.entries = make(map[types.NamespacedName]*cacheEntry)
		}
		c.entries[key] = e
	}
	if !stale {
		e.newest = secret.ResourceVersion
	}
	c.asked++
	e.users, e.asked = e.users+1, c.asked
	return e, replaced, nil
}

// release ends one use of e, and closes what is not kept.
func (c *Cache) release(key types.NamespacedName, e *cacheEntry) {
	c.mu.Lock()
	e.users--
	var unused []*cacheEntry
	switch {
	case e.users > 0:
	case e.dropped:
		unused = append(unused, e)
	case e.client == nil: // it has no Client to keep, and no Get is under way
		c.dropLocked(key, e)
	}
	unused = append(unused, c.evictLocked()...)
	c.mu.Unlock()
	for _, e := range unused {
		closeClient(e)
	}
}

// evictLocked drops unused entries until there are no more than Size.
func (c *Cache) evictLocked() []*cacheEntry {
	size := cmp.Or(c.Size, defaultCacheSize)
	var evicted []*cacheEntry
	for len(c.entries) > size {
		var oldest *cacheEntry
		var oldestKey types.NamespacedName
		for key, e := range c.entries {
			if e.users == 0 && (oldest == nil || e.asked < oldest.asked) {
				oldest, oldestKey = e, key
			}
		}
		if oldest == nil {
			break // all are in use
		}
		evicted = append(evicted, c.dropLocked(oldestKey, oldest))
	}
	return evicted
}

// dropLocked takes e, which may be nil, out of the Cache. It returns e if nobody
// uses it: the caller then closes it.
func (c *Cache) dropLocked(key types.NamespacedName, e *cacheEntry) *cacheEntry {
	if e == nil {
		return nil
	}
	delete(c.entries, key)
	e.dropped = true
	if e.users > 0 {
		return nil
	}
	return e
}

func closeClient(e *cacheEntry) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		e.client.Close()
	}
}

// update makes e's Client, or gives it the kubeconfig of a newer Secret.
func (c *Cache) update(e *cacheEntry, secret *corev1.Secret) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	value := secret.Data[kubeconfig.SecretKey]
	stale := c.isStale(e, secret)
	switch {
	case e.client != nil && (stale || bytes.Equal(value, e.value)):
		return c.checkOpen()
	case stale:
		return fmt.Errorf("connect: Secret %s/%s: resourceVersion %s: there is a newer one", secret.Namespace, secret.Name, secret.ResourceVersion)
	}
	config, err := kubeconfig.FromSecret(secret)
	if err != nil {
		return err
	}
	if e.client == nil {
		var opts Options
		if c.Options != nil {
			if given := c.Options(secret); given != nil {
				opts = *given
			}
		}
		e.client, err = New(config, &opts)
	} else {
		err = e.client.useConfig(config)
	}
	if err != nil {
		return fmt.Errorf("connect: Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	e.value = value
	return c.checkOpen()
}

func (c *Cache) isStale(e *cacheEntry, secret *corev1.Secret) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clusterapi.IsOlder(secret.ResourceVersion, e.newest)
}

func (c *Cache) checkOpen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	return nil
}
