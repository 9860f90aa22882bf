package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/turns"
)

const (
	// maxBody is a body's: the API server takes objects of up to 3 MiB, and sends the old
	// one, too. It is also what all larger bodies and answers have together.
	maxBody = 8 << 20
	// smallBody is a body of which as many may be held as there are connections. A
	// review of an ordinary pod has 5 to 20 KiB.
	smallBody = 64 << 10
	// maxWait is how long a larger one waits until it may be read. The API server waits
	// for 2 to 5 s, as the manifests have it.
	maxWait = time.Second
	// slowTime is how long a client may take for a larger body or answer while another
	// one waits.
	slowTime = 250 * time.Millisecond
	// maxValues bounds what a body becomes when it is parsed: "{}," takes three bytes
	// in a body, and seventy as a container.
	maxValues = 1 << 17
	// maxParsed is how many small bodies are parsed at once.
	maxParsed = 4
)

// A limiter has a handler called with bodies that have come, and sends its answers.
type limiter struct {
	handler http.Handler
	refused func(int, error)
	large   byteBudget
	small   *turns.Queue[netip.Prefix] // the handler is called with small bodies
	huge    *turns.Queue[netip.Prefix] // and with a large one
}

func newLimiter(h http.Handler, refused func(int, error)) *limiter {
	if refused == nil {
		refused = func(int, error) {}
	}
	return &limiter{handler: h, refused: refused, small: turns.New[netip.Prefix](maxParsed, 0), huge: turns.New[netip.Prefix](1, 0),
		large: byteBudget{free: maxBody, entering: turns.New[netip.Prefix](1, 0)}}
}

func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &client{from: sourceOf(r), control: http.NewResponseController(w)}
	defer l.large.give(c)
	answer, err := l.answer(c, w, r)
	if err != nil {
		status := statusOf(err)
		l.refused(status, err)
		w.Header().Set("Connection", "close")
		c.control.SetReadDeadline(time.Now().Add(slowTime)) // net/http reads on
		http.Error(w, err.Error(), status)
		return
	}
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.status)
	if _, err := w.Write(answer.body.Bytes()); err != nil { // the API server's failurePolicy knows what to do
		l.refused(answer.status, statusErrorf(answer.status, "the answer: %w", err))
	}
}

// answer reads the body, and calls the handler when it has come. It waits until there is
// room for the answer: that may have been made of little, and its reader may be slow.
func (l *limiter) answer(c *client, w http.ResponseWriter, r *http.Request) (answer answerBuffer, err error) {
	body, err := l.readBody(c, w, r)
	if err != nil {
		return answer, err
	}
	parsing := l.small
	if len(body) > smallBody {
		parsing = l.huge
		l.large.hold(c)
	}
	if err := parsing.Enter(r.Context(), c.from); err != nil {
		return answer, statusErrorf(http.StatusServiceUnavailable, "%w", err)
	}
	defer parsing.Leave()
	whole := r.WithContext(r.Context())
	whole.Body, whole.ContentLength, whole.Trailer = wholeBody{bytes.NewReader(body), body}, int64(len(body)), nil
	answer.header, answer.status = http.Header{}, http.StatusOK
	l.handler.ServeHTTP(&answer, whole)
	l.large.give(c)
	switch size := int64(answer.body.Len()); {
	case size > maxBody:
		return answer, statusErrorf(http.StatusInternalServerError, "the answer has more than %d bytes", maxBody)
	case size > smallBody:
		err = l.large.take(r.Context(), c, size, c.control.SetWriteDeadline)
	}
	return answer, err
}

// readBody returns the body. What is larger than smallBody is read once there is room.
func (l *limiter) readBody(c *client, w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	room := int64(smallBody)
	if r.ContentLength >= 0 {
		room = min(room, r.ContentLength)
	}
	from := http.MaxBytesReader(w, r.Body, maxBody)
	body, err = readAtMost(from, nil, room+1) // one more shows that there is more
	if err == nil && int64(len(body)) > smallBody {
		size := r.ContentLength
		if size < 0 {
			size = maxBody
		}
		if err = l.large.take(r.Context(), c, size, c.control.SetReadDeadline); err != nil {
			return nil, err
		}
		body, err = readAtMost(from, body, size+1)
	}
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, statusErrorf(http.StatusRequestTimeout, "the body did not come in time: %w", err)
	case err != nil:
		return nil, statusErrorf(http.StatusBadRequest, "read the body: %w", err)
	case bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("["))+bytes.Count(body, []byte(",")) > maxValues:
		return nil, statusErrorf(http.StatusRequestEntityTooLarge, "more than %d values", maxValues)
	}
	return body, nil
}

var errTooLarge = statusErrorf(http.StatusRequestEntityTooLarge, "more than %d bytes", maxBody)

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

// sourceOf returns the address of the client, for turns.
func sourceOf(r *http.Request) netip.Prefix {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	return turns.Source(net.TCPAddrFromAddrPort(addr))
}

// wholeBody is a body in memory, which Handlers need not copy.
type wholeBody struct {
	*bytes.Reader
	bytes []byte
}

func (wholeBody) Close() error { return nil }

// answerBuffer is the answer of a handler.
type answerBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answerBuffer) Header() http.Header            { return a.header }
func (a *answerBuffer) WriteHeader(status int)         { a.status = status }
func (a *answerBuffer) Write(text []byte) (int, error) { return a.body.Write(text) }

// A client has a request.
type client struct {
	from    netip.Prefix
	control *http.ResponseController

	// The budget's lock guards these.
	bytes    int64
	since    time.Time // since it keeps us waiting; zero: it does not
	deadline func(time.Time) error
}

// byteBudget is memory for the larger bodies and answers. Sources take it in turn.
type byteBudget struct {
	entering *turns.Queue[netip.Prefix] // one turn: its holder takes the next bytes

	mu      sync.Mutex // guards the fields below
	free    int64
	clients []*client     // that have some, the first one first
	freed   chan struct{} // closed when bytes are given back; nil if nobody waits
}

// take waits for n bytes, which c has until give. From then on c keeps others waiting until
// hold or give, and deadline ends what it does if that is too long.
func (b *byteBudget) take(ctx context.Context, c *client, n int64, deadline func(time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	busy := statusErrorf(http.StatusServiceUnavailable, "too many large reviews at once")
	if b.entering.Enter(ctx, c.from) != nil {
		return busy
	}
	defer b.entering.Leave()
	again := time.NewTicker(slowTime / 5)
	defer again.Stop()
	for {
		freed, ok := b.tryTake(c, n, deadline)
		if ok {
			return nil
		}
		select {
		case <-freed:
		case <-again.C:
		case <-ctx.Done():
			return busy
		}
	}
}

// tryTake takes n bytes if they are free. Else it ends slow clients.
func (b *byteBudget) tryTake(c *client, n int64, deadline func(time.Time) error) (freed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if n <= b.free {
		b.free -= n
		c.bytes, c.since, c.deadline = n, now, deadline
		b.clients = append(b.clients, c)
		return nil, true
	}
	missing := n - b.free
	for _, slow := range b.clients {
		if missing > 0 && !slow.since.IsZero() && now.Sub(slow.since) >= slowTime {
			slow.deadline(now) // it does not block
			missing -= slow.bytes
		}
	}
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed, false
}

// hold says that c is served, and does not keep others waiting.
func (b *byteBudget) hold(c *client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.since = time.Time{}
}

// give gives back what c has, if it has something.
func (b *byteBudget) give(c *client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.bytes == 0 {
		return
	}
	b.free += c.bytes
	c.bytes = 0
	b.clients = slices.DeleteFunc(b.clients, func(other *client) bool { return other == c })
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}
