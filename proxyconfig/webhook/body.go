package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// smallBody is a body of which as many may be held as there are connections. A
	// review of an ordinary pod has 5 to 20 KiB.
	smallBody = 64 << 10
	// maxWait is how long a larger one waits until it may be read. The API server waits
	// for 5 s, as the manifest has it.
	maxWait = time.Second
	// maxValues bounds what a body becomes when it is parsed: "{}," takes three bytes
	// in a body, and seventy as a container.
	maxValues = 1 << 17
	// maxContainers bounds the answer, which has up to six variables for each.
	maxContainers = 1024
	// maxParsed is how many bodies are parsed at once.
	maxParsed = 8
)

// byteBudget is memory for the larger bodies.
type byteBudget struct {
	mu    sync.Mutex // guards the fields below
	free  int64
	freed chan struct{} // closed when bytes are given back; nil if nobody waits
}

// take waits for n bytes until ctx ends, and reports whether it got them.
func (b *byteBudget) take(ctx context.Context, n int64) bool {
	for {
		b.mu.Lock()
		if n <= b.free {
			b.free -= n
			b.mu.Unlock()
			return true
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (b *byteBudget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// readBody returns the body, and a function that gives its memory back. What is larger
// than smallBody is read once there is room for it.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	limit := h.opts.maxBody()
	large := func() error { return statusErrorf(http.StatusRequestEntityTooLarge, "more than %d bytes", limit) }
	if r.ContentLength > limit {
		return nil, nil, large()
	}
	release = func() {}
	room := int64(smallBody)
	if r.ContentLength >= 0 {
		room = min(room, r.ContentLength)
	}
	from := http.MaxBytesReader(w, r.Body, limit)
	body, err = readAtMost(from, nil, room+1) // one more shows that there is more
	if err == nil && int64(len(body)) > smallBody {
		size := r.ContentLength
		if size < 0 {
			size = limit
		}
		if release, err = h.takeLarge(r.Context(), size); err != nil {
			return nil, nil, err
		}
		body, err = readAtMost(from, body, size+1)
	}
	if err != nil {
		release()
		if errors.As(err, new(*http.MaxBytesError)) {
			return nil, nil, large()
		}
		return nil, nil, statusErrorf(http.StatusBadRequest, "read the body: %w", err)
	}
	if bytes.Count(body, []byte("{"))+bytes.Count(body, []byte(",")) > maxValues {
		release()
		return nil, nil, statusErrorf(http.StatusRequestEntityTooLarge, "more than %d values", maxValues)
	}
	return body, release, nil
}

// takeLarge waits for n bytes, and returns a function that gives them back.
func (h *Handler) takeLarge(ctx context.Context, n int64) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if !h.large.take(ctx, n) {
		return nil, statusErrorf(http.StatusServiceUnavailable, "too many large reviews at once")
	}
	return func() { h.large.give(n) }, nil
}

// readAtMost appends to body until that has n bytes, or the reader ends.
func readAtMost(from io.Reader, body []byte, n int64) ([]byte, error) {
	body = append(make([]byte, 0, n), body...)
	for int64(len(body)) < n {
		read, err := from.Read(body[len(body):n])
		body = body[:len(body)+read]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}
