package controllers

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// How many objects a page has. Each may have 1.5 MiB of text.
const (
	pageSize             = 8
	unstructuredPageSize = 2
)

// pagedInformer transforms objects as soon as they come, and lists a few at a time. Others transform
// a list when they have all of it, and tenants can make one that is larger than the memory.
type pagedInformer struct {
	toolscache.SharedIndexInformer
	from      toolscache.ListerWatcherWithContext
	pageSize  int64
	transform toolscache.TransformFunc
}

func newPagedInformer(from toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	p := &pagedInformer{
		from: toolscache.ToListerWatcherWithContext(from), pageSize: pageSize,
		transform: func(object any) (any, error) { return object, nil },
	}
	if _, ok := object.(*unstructured.Unstructured); ok {
		p.pageSize = unstructuredPageSize
	}
	both := &toolscache.ListWatch{ListWithContextFunc: p.listPages, WatchFuncWithContext: p.watchTransformed}
	p.SharedIndexInformer = toolscache.NewSharedIndexInformer(both, object, resync, indexers)
	return p
}

// SetTransform implements toolscache.SharedIndexInformer.
func (p *pagedInformer) SetTransform(transform toolscache.TransformFunc) error {
	if transform != nil {
		p.transform = transform
	}
	return nil
}

// listPages asks for the newest list: an API server answers a question for any version with all at once.
func (p *pagedInformer) listPages(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.Limit = "", "", p.pageSize
	all := &internalversion.List{}
	for {
		if err := p.addPage(ctx, &opts, all); err != nil {
			return nil, err
		}
		if opts.Continue == "" {
			return all, nil
		}
	}
}

func (p *pagedInformer) addPage(ctx context.Context, opts *metav1.ListOptions, all *internalversion.List) error {
	defer takeDecoding(decoding)()
	page, err := p.from.ListWithContext(ctx, *opts)
	if err != nil {
		return err
	}
	about, err := meta.ListAccessor(page)
	if err != nil {
		return err
	}
	opts.Continue, all.ResourceVersion = about.GetContinue(), about.GetResourceVersion()
	return meta.EachListItemWithAlloc(page, func(object runtime.Object) error {
		kept, err := p.transform(object)
		if err == nil {
			all.Items = append(all.Items, kept.(runtime.Object))
		}
		return err
	})
}

func (p *pagedInformer) watchTransformed(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := p.from.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	t := &transformedWatch{Interface: w, results: make(chan watch.Event), stopped: make(chan struct{})}
	go t.run(p.transform)
	return t, nil
}

// transformedWatch is a watch whose objects are transformed.
type transformedWatch struct {
	watch.Interface
	results chan watch.Event
	stop    sync.Once
	stopped chan struct{}
}

// run ends with the watch, or when it is stopped, although nobody reads then.
func (t *transformedWatch) run(transform toolscache.TransformFunc) {
	defer close(t.results)
	for e := range t.Interface.ResultChan() {
		if e.Type == watch.Added || e.Type == watch.Modified || e.Type == watch.Deleted {
			if kept, err := transform(e.Object); err == nil {
				e.Object = kept.(runtime.Object)
			}
		}
		select {
		case t.results <- e:
		case <-t.stopped:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (t *transformedWatch) ResultChan() <-chan watch.Event { return t.results }

// Stop implements watch.Interface.
func (t *transformedWatch) Stop() {
	t.stop.Do(func() { close(t.stopped) })
	t.Interface.Stop()
}

// decoding has one place in the process: an object that is decoded takes up to fifty times its
// text, and there is a watch for each kind that a tenant's Clusters name.
var decoding = make(chan struct{}, 1)

// decodingTime is how long one waits for the place: who has it may wait for an API server.
const decodingTime = time.Second / 2

// takeDecoding returns what gives the place back.
func takeDecoding(place chan struct{}) (leave func()) {
	select {
	case place <- struct{}{}:
		return func() { <-place }
	case <-time.After(decodingTime):
		return func() {}
	}
}

// turnsTransport has its watches take turns: what was read of one is decoded before its next Read.
type turnsTransport struct {
	http.RoundTripper
	place chan struct{}
}

// takeTurns returns a client of whose watches one is decoded at a time.
func takeTurns(client *http.Client, place chan struct{}) *http.Client {
	turns := *client
	turns.Transport = turnsTransport{cmp.Or(client.Transport, http.DefaultTransport), place}
	return &turns
}

// RoundTrip implements http.RoundTripper.
func (t turnsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") {
		resp.Body = &turnsBody{ReadCloser: resp.Body, place: t.place}
	}
	return resp, err
}

type turnsBody struct {
	io.ReadCloser
	place  chan struct{}
	closed atomic.Bool
	leave  atomic.Pointer[func()]
}

func (b *turnsBody) end() {
	if leave := b.leave.Swap(nil); leave != nil {
		(*leave)()
	}
}

func (b *turnsBody) Read(p []byte) (int, error) {
	b.end()
	n, err := b.ReadCloser.Read(p)
	if n > 0 && err == nil {
		leave := takeDecoding(b.place)
		b.leave.Store(&leave)
		if b.closed.Load() { // there may be no other Read
			b.end()
		}
	}
	return n, err
}

func (b *turnsBody) Close() error {
	b.closed.Store(true)
	defer b.end()
	return b.ReadCloser.Close()
}
