package kubernetes

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// follow runs an informer until ctx ends, and calls changed, from its own
// goroutine alone, once the cache is filled and after changes. Several changes
// may make one call. failed, if not nil, is told why a watch or a list failed;
// the informer tries again by itself.
func follow(ctx context.Context, informer cache.SharedIndexInformer, failed func(error), changed func()) error {
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if failed != nil && ctx.Err() == nil {
			failed(err)
		}
	})
	if err != nil {
		return err
	}
	news := make(chan struct{}, 1)
	tell := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { tell() },
		UpdateFunc: func(any, any) { tell() },
		DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	for {
		changed()
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
}
