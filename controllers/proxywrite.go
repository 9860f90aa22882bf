package controllers

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// getObject returns nil if there is no such object.
func getObject[T client.Object](ctx context.Context, from client.Reader, name types.NamespacedName, object T) (T, error) {
	err := from.Get(ctx, name, object)
	if err == nil {
		return object, nil
	}
	var none T
	return none, client.IgnoreNotFound(err)
}

// errCacheLate says that a cache doesn't show yet what was written last, by this process or
// by another.
var errCacheLate = errors.New("controllers: the cache does not show the last write")

// getWritten is getObject for one of ours in a cache: a plan of what was before our
// last write would write again. It is errCacheLate until the cache shows that write.
// If that takes too long, as when the object was deleted in between, each call asks live,
// which is the API server.
func getWritten[T client.Object](ctx context.Context, writes *writeLog, live, from client.Reader, name types.NamespacedName, object T) (T, error) {
	got, err := getObject(ctx, from, name, object)
	if err != nil {
		return got, err
	}
	var none T
	version := ""
	if client.Object(got) != client.Object(none) {
		version = got.GetResourceVersion()
	}
	switch late := writes.cacheDelay(writeKey(object, name), version, time.Now()); {
	case late == 0:
		return got, nil
	case late < maxCacheDelay:
		return none, errCacheLate
	}
	return getObject(ctx, live, name, object)
}

// writeObjects writes the objects in their order, up to the first that fails, and
// returns that one with the error. A write that fails is planned anew, never
// repeated. check is asked before each write, and its error ends them.
func (p *proxyRun) writeObjects(ctx context.Context, objects []propagate.Object, check func(context.Context) error) (failed client.Object, err error) {
	for _, o := range objects {
		object := client.Object(o.Secret)
		if o.Secret == nil {
			object = o.ConfigMap
		}
		if err := check(ctx); err != nil {
			return object, err
		}
		if err := p.writer.write(ctx, object); err != nil {
			return object, err
		}
	}
	return nil, nil
}

// objectWriter writes a reconciler's objects. It counts and remembers the writes.
type objectWriter struct {
	client.Client
	writes writeLog
	counts writeCounter
}

func newObjectWriter(to client.Client, owner string, counts writeCounter) *objectWriter {
	return &objectWriter{Client: client.WithFieldOwner(to, owner), counts: counts}
}

// write creates an object without a resourceVersion, and updates another one.
func (w *objectWriter) write(ctx context.Context, object client.Object) (err error) {
	verb := writeUpdate
	object.SetManagedFields(nil) // the API server keeps its own; a cache has a part of them
	if object.GetResourceVersion() == "" {
		verb = writeCreate
		err = w.Create(ctx, object)
	} else {
		err = w.Update(ctx, object)
	}
	return w.noteResult(ctx, verb, object, err)
}

// delete deletes the object as it was read, unless it is gone.
func (w *objectWriter) delete(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := client.IgnoreNotFound(w.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}))
	return w.noteResult(ctx, writeDelete, object, err)
}

func (w *objectWriter) noteResult(ctx context.Context, verb string, object client.Object, err error) error {
	w.counts.count(verb, err)
	if err != nil {
		return writeError(verb, kindOf(object), nameOf(object), err)
	}
	w.writes.noteWrite(writeKey(object, nameOf(object)), lastWrite{version: object.GetResourceVersion(), deleted: verb == writeDelete, at: time.Now()})
	log.FromContext(ctx).Info("wrote", "target", writeKey(object, nameOf(object)), "verb", verb)
	return nil
}

// readLive asks the API server for an object, which may be in no cache.
func (p *proxyRun) readLive(ctx context.Context, object client.Object) (client.Object, error) {
	var found client.Object = &corev1.Secret{}
	if _, ok := object.(*corev1.ConfigMap); ok {
		found = &corev1.ConfigMap{}
	}
	if err := p.live.Get(ctx, nameOf(object), found); err != nil {
		return nil, writeError("get", kindOf(object), nameOf(object), err)
	}
	return found, nil
}

func kindOf(object client.Object) string {
	if _, ok := object.(*corev1.ConfigMap); ok {
		return "ConfigMap"
	}
	return "Secret"
}

const (
	maxCacheDelay = 5 * time.Second // how long a cache is waited for
	maxWriteAge   = time.Minute     // how long a write is remembered that nobody asks for
)

// writeLog has the last write of each object until a cache shows it. It may be
// lost at any time, at the cost of a few conflicts. The zero value is ready for use.
type writeLog struct {
	mu     sync.Mutex // guards writes
	writes map[string]lastWrite
}

type lastWrite struct {
	version string // the resourceVersion after the write; for a deletion, before it
	deleted bool
	at      time.Time
}

// isShown reports whether a cache that has the object in this version, "" for none, shows
// the write.
func (w lastWrite) isShown(version string) bool {
	if w.deleted {
		return version == "" || clusterapi.IsOlder(w.version, version)
	}
	return version != "" && !clusterapi.IsOlder(version, w.version)
}

func writeKey(object client.Object, name types.NamespacedName) string {
	return kindOf(object) + " " + name.String()
}

func (l *writeLog) noteWrite(object string, write lastWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writes == nil {
		l.writes = map[string]lastWrite{}
	}
	maps.DeleteFunc(l.writes, func(_ string, w lastWrite) bool { return write.at.Sub(w.at) > maxWriteAge }) // of Clusters that are gone
	l.writes[object] = write
}

// cacheDelay returns how long ago the last write of the object was, if the cache,
// which has it in this version, "" for none, does not show it; 0 if it does.
func (l *writeLog) cacheDelay(object, version string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.writes[object]
	if ok && !last.isShown(version) {
		return max(now.Sub(last.at), 1)
	}
	delete(l.writes, object)
	return 0
}
