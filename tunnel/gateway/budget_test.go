package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// pipes is a listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// budgetBed is a door and a session of the tunnel that share 1 MiB.
type budgetBed struct {
	*testing.T
	shared   budget.Budget
	listener pipes
	session  *mux.Session
	greedy   *budgetClient
	conns    []net.Conn // of all clients
	asked    int        // by HTTP/1
	ended    atomic.Int64
	idled    atomic.Value // whose connection was ended for frames that bring nothing
	never    atomic.Int64 // dials to the one that is never connected
}

func newBudgetBed(t *testing.T, bound int64) (b *budgetBed, end func()) {
	b = &budgetBed{T: t, shared: budget.Budget{Bytes: bound}, listener: make(pipes)}
	near, far := net.Pipe()
	b.session = mux.Client(near, &mux.Config{Budget: &b.shared})
	agent := mux.Server(far, nil)
	agent.Serve(func(st *mux.Stream) { go st.Write(make([]byte, 200<<10)) })
	g := &gateway.Gateway{Dial: b.dial, Budget: &b.shared, Grace: -1, DialTimeout: time.Hour}
	g.Authenticate = func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if c.User == "nobody" {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		return gateway.Identity{Name: c.User, Cluster: "a"}, nil
	}
	g.Hooks.Failed = func(err error) {
		if e := err.(*gateway.Error); e.Phase == gateway.PhaseLimit && strings.Contains(e.Error(), "bring nothing") {
			b.idled.Store(e.Request.Client.Name)
		}
	}
	served := make(chan error, 1)
	go func() { served <- g.ServeConnect(t.Context(), b.listener) }()
	return b, func() {
		for _, conn := range b.conns {
			conn.Close()
		}
		synctest.Wait()
		close(b.listener)
		g.Close()
		b.session.Close()
		agent.Close()
		<-served
	}
}

// echoes returns how long the stream takes for a byte and its echo.
func (c *budgetClient) echoes(id uint32) time.Duration {
	began := time.Now()
	c.WriteData(id, false, []byte("x"))
	<-c.data
	return time.Since(began)
}

// A client that makes dials and leaves them costs others no time, and itself none afterwards.
func TestAbandonedDials(t *testing.T) {
	for name, leave := range map[string]func(b *budgetBed){
		"by HTTP/2": func(b *budgetBed) {
			for range 30 {
				ann := b.client("ann", -1)
				for range 50 {
					ann.WriteRSTStream(ann.connect("never", 0), http2.ErrCodeCancel)
				}
				synctest.Wait()
			}
		},
		"by HTTP/1": func(b *budgetBed) {
			for range 1500 {
				near, far := net.Pipe()
				b.listener <- far
				fmt.Fprintf(near, "CONNECT never:1 HTTP/1.1\r\nProxy-Authorization: Basic %s\r\n\r\n", base64.StdEncoding.EncodeToString([]byte("ann:")))
				synctest.Wait()
				near.Close()
				synctest.Wait()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, end := newBudgetBed(t, 1<<20)
				defer end()
				leave(b)
				for _, user := range []string{"bob", "ann"} {
					c := b.client(user, -1)
					if took := c.echoes(c.connect("echo", 0)); took > 10*time.Millisecond {
						t.Errorf("%s has waited %v", user, took)
					}
				}
			})
		})
	}
}

// Of the dials of a client that are not answered, ten are begun in ten milliseconds. Answered ones don't
// wait, nor do those of others.
func TestTurnsOfDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBudgetBed(t, 1<<20)
		defer end()
		ann, bob := b.client("ann", -1), b.client("bob", -1)
		for range 300 {
			ann.connect("echo", 0)
		}
		for range 200 {
			ann.connect("never", 0)
		}
		if took := bob.echoes(bob.connect("echo", 0)); took > 0 {
			t.Errorf("another client has waited %v", took)
		}
		for i := range 3 {
			synctest.Wait()
			if got := b.never.Load(); got != int64(10*i+10) {
				t.Errorf("%d dials that hang were begun after %d ms, want %d", got, 10*i, 10*i+10)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// Who begins anew whenever a connection ends does no more that brings nothing than on one, and others
// don't wait.
func TestWasteOfManyConnections(t *testing.T) {
	for _, tt := range []struct {
		name, user string
		times      int
		do         func(c *budgetClient) error
		least      time.Duration
	}{
		{"settings", "ann", 2000, func(c *budgetClient) error { return c.WriteSettings() }, 20 * time.Second},
		{"wrong credentials", "nobody", 2000, func(c *budgetClient) error { c.connect("echo", 0); return c.WritePing(false, [8]byte{}) }, 14 * time.Second},
		{"wrong credentials, and a reset", "nobody", 2000, func(c *budgetClient) error {
			return c.WriteRSTStream(c.connect("echo", 0), http2.ErrCodeCancel)
		}, 14 * time.Second},
		{"dials that fail", "ann", 15_000, func(c *budgetClient) error { return c.WriteRSTStream(c.connect("fails", 0), http2.ErrCodeNo) }, 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, end := newBudgetBed(t, 1<<20)
				defer end()
				bob := b.client("bob", -1)
				id := bob.connect("echo", 0)
				began := time.Now()
				c := b.client(tt.user, -1)
				for range tt.times {
					for tt.do(c) != nil {
						c = b.client(tt.user, -1)
					}
					if n := len(b.conns); n > tt.times {
						t.Fatalf("%d connections", n)
					}
				}
				if took := time.Since(began); took < tt.least || took > 2*tt.least {
					t.Errorf("it took %v, want %v and little more", took, tt.least)
				}
				if took := bob.echoes(id); took > 0 {
					t.Errorf("another client has waited %v", took)
				}
			})
		})
	}
}

// A connection with too many frames that bring nothing ends, and its client learns why.
func TestIdleFrames(t *testing.T) {
	wasReset := false
	for name, write := range map[string]func(c *budgetClient, id uint32) error{
		"priority":   func(c *budgetClient, id uint32) error { return c.WritePriority(id, http2.PriorityParam{}) },
		"windows":    func(c *budgetClient, id uint32) error { return c.WriteWindowUpdate(0, 1) },
		"empty data": func(c *budgetClient, id uint32) error { return c.WriteData(id, false, nil) },
		"padding":    func(c *budgetClient, id uint32) error { return c.WriteDataPadded(id, false, nil, make([]byte, 9)) },
		"unknown":    func(c *budgetClient, id uint32) error { return c.WriteRawFrame(99, 0, 0, nil) },
		"ping":       func(c *budgetClient, id uint32) error { return c.WritePing(true, [8]byte{}) },
		"settings":   func(c *budgetClient, id uint32) error { return c.WriteSettings() },
		"resets": func(c *budgetClient, id uint32) error {
			return c.WriteRSTStream(c.connect("never", 0), http2.ErrCodeCancel)
		},
		"resets of one": func(c *budgetClient, id uint32) error { return c.WriteRSTStream(id, http2.ErrCodeCancel) },
		"data of a stream that was reset": func(c *budgetClient, id uint32) error {
			if !wasReset {
				c.WriteRSTStream(id, http2.ErrCodeCancel)
			}
			wasReset = true
			return c.WriteData(id, false, []byte("x"))
		},
		"streams beyond the most": func(c *budgetClient, id uint32) error {
			if c.last == 1 {
				c.WriteSettingsAck()
			}
			c.last++
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.last*2 + 1, BlockFragment: headerBlock(":method", "CONNECT", ":authority", "never:1"), EndHeaders: true})
		},
		"continuations":       func(c *budgetClient, id uint32) error { return c.WriteContinuation(3, false, nil) },
		"long continuations":  func(c *budgetClient, id uint32) error { return c.WriteContinuation(3, false, sizeUpdates[:1<<10]) },
		"short continuations": func(c *budgetClient, id uint32) error { return c.WriteContinuation(3, false, sizeUpdates[:1]) },
		"malformed": func(c *budgetClient, id uint32) error {
			c.last++
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.last*2 + 1, BlockFragment: headerBlock("x", "y"), EndHeaders: true})
		},
		"names that must not be": func(c *budgetClient, id uint32) error {
			c.last++
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.last*2 + 1, BlockFragment: headerBlock("X", "y"), EndHeaders: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, end := newBudgetBed(t, 1<<20)
				defer end()
				c := b.client("ann", -1)
				id := c.connect("echo", 0)
				c.AllowIllegalWrites = true
				if strings.HasSuffix(name, "continuations") {
					c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: sizeUpdates[:1]})
				}
				sent := 0
				for ; sent < 9000 && write(c, id) == nil; sent++ {
				}
				time.Sleep(10 * time.Second)
				c.mu.Lock()
				defer c.mu.Unlock()
				if sent > 4500 || c.code[0] != http2.ErrCodeEnhanceYourCalm || !strings.Contains(c.reason, "bring nothing") {
					t.Errorf("%d frames, and then %v, %q; want 4,000 at most and ENHANCE_YOUR_CALM", sent, c.code[0], c.reason)
				}
				if got := b.idled.Load(); got != "ann" {
					t.Errorf("the failure names %v, want the client", got)
				}
			})
		})
	}
}

// sizeUpdates is a header block without a field: updates of the size of the table of fields.
var sizeUpdates = bytes.Repeat([]byte{0x20}, 1<<10)

// What useful clients send never ends their connection.
func TestUsefulFrames(t *testing.T) {
	// nine is as long as a frame's header, and looks like that of an unknown one.
	nine := []byte{0, 0, 0, 99, 0, 0, 0, 0, 0}
	echo := func(c *budgetClient, id uint32, p []byte) {
		c.WriteData(id, false, p)
		for n := 0; n < len(p); {
			n += <-c.data
		}
		// One of the least patient clients.
		c.WriteWindowUpdate(0, uint32(len(p)))
		c.WriteWindowUpdate(id, uint32(len(p)))
	}
	for _, tt := range []struct {
		name   string
		rounds int
		round  func(c *budgetClient, id uint32)
	}{
		{"a byte at a time", 20_000, func(c *budgetClient, id uint32) { echo(c, id, nine[:1]) }},
		{"nine bytes at a time", 20_000, func(c *budgetClient, id uint32) { echo(c, id, nine) }},
		{"much, and its windows", 5000, func(c *budgetClient, id uint32) { echo(c, id, make([]byte, 8<<10)) }},
		{"64 bytes of many, and their windows", 300, func(c *budgetClient, id uint32) {
			c.WriteData(id, false, make([]byte, 8<<10))
			for n := 0; n < 8<<10; {
				n += <-c.data
			}
			for range 128 {
				c.WriteWindowUpdate(0, 64)
				c.WriteWindowUpdate(id, 64)
			}
		}},
		{"nine bytes without windows", 1000, func(c *budgetClient, id uint32) {
			c.WriteWindowUpdate(0, 1<<10)
			for range 100 {
				c.WriteData(id, false, nine)
				<-c.data
			}
			c.WriteWindowUpdate(id, 1<<10)
		}},
		{"a byte at a time, and a ping", 20_000, func(c *budgetClient, id uint32) {
			echo(c, id, nine[:1])
			c.WritePing(false, [8]byte{})
		}},
		{"a ping in ten seconds for days", 50_000, func(c *budgetClient, id uint32) {
			time.Sleep(10 * time.Second)
			c.WritePing(true, [8]byte{})
		}},
		{"streams that end", 3000, func(c *budgetClient, _ uint32) {
			id := c.connect("echo", 0)
			c.WriteWindowUpdate(id, 1<<20)
			c.WriteData(id, false, nine)
			<-c.data
			c.WriteData(id, true, nil)
			c.WriteRSTStream(id, http2.ErrCodeCancel)
		}},
		{"dials that fail", 4000, func(c *budgetClient, _ uint32) { c.WriteRSTStream(c.connect("fails", 0), http2.ErrCodeNo) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, end := newBudgetBed(t, 1<<20)
				defer end()
				c := b.client("ann", -1)
				id := c.connect("echo", 0)
				began := time.Now()
				tt.round(c, id)
				once := time.Since(began)
				for range tt.rounds - 1 {
					tt.round(c, id)
				}
				if took := time.Since(began); took != once*time.Duration(tt.rounds) {
					t.Errorf("it was kept waiting: it took %v, want %v", took, once*time.Duration(tt.rounds))
				}
				synctest.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				if code, ended := c.code[0]; ended {
					t.Errorf("the connection has ended: %v", code)
				}
			})
		})
	}
}

// budgetClient is a client by HTTP/2, whose streams never get a larger window.
type budgetClient struct {
	*http2.Framer
	conn   net.Conn
	user   string
	header *hpack.Encoder
	block  bytes.Buffer
	last   uint32

	mu   sync.Mutex
	data chan int
	code map[uint32]http2.ErrCode // of the streams that were reset, and 0 for the connection
	// reason is what the connection's end says.
	reason string
}

// client returns a client, which reads what it is sent, or so many frames of data.
func (b *budgetBed) client(user string, reads int) *budgetClient {
	near, far := net.Pipe()
	b.listener <- far
	b.conns = append(b.conns, near)
	c := &budgetClient{Framer: http2.NewFramer(near, near), conn: near, user: user, data: make(chan int, 10), code: map[uint32]http2.ErrCode{}}
	c.header = hpack.NewEncoder(&c.block)
	go c.readFrames(reads)
	io.WriteString(near, http2.ClientPreface)
	c.WriteSettings()
	return c
}

// connectByHTTP1 asks for the target on a connection of its own, and sends 16 KiB before there is an answer.
func (b *budgetBed) connectByHTTP1(target string) {
	near, far := net.Pipe()
	b.listener <- far
	b.conns = append(b.conns, near)
	b.asked++
	go func() {
		io.Copy(io.Discard, near)
		b.ended.Add(1)
	}()
	user := base64.StdEncoding.EncodeToString([]byte("ann:"))
	fmt.Fprintf(near, "CONNECT %s:1 HTTP/1.1\r\nHost: %[1]s:1\r\nProxy-Authorization: Basic %s\r\n\r\n", target, user)
	near.Write(make([]byte, 16<<10))
}

func (c *budgetClient) readFrames(data int) {
	for data != 0 {
		f, err := c.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			c.mu.Lock()
			c.code[f.StreamID] = f.ErrCode
			c.mu.Unlock()
		case *http2.GoAwayFrame:
			c.mu.Lock()
			c.code[0], c.reason = f.ErrCode, string(f.DebugData())
			c.mu.Unlock()
		case *http2.DataFrame:
			data--
			select {
			case c.data <- len(f.Data()):
			default:
			}
		}
	}
}

// connect opens a stream to the target, and sends so many bytes on it.
func (c *budgetClient) connect(target string, size int) (id uint32) {
	id = c.last*2 + 1
	c.last++
	c.block.Reset()
	c.header.WriteField(hpack.HeaderField{Name: ":method", Value: "CONNECT"})
	c.header.WriteField(hpack.HeaderField{Name: ":authority", Value: target + ":1"})
	c.header.WriteField(hpack.HeaderField{Name: "proxy-authorization", Value: "Basic " + base64.StdEncoding.EncodeToString([]byte(c.user+":"))})
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true})
	synctest.Wait()
	for size > 0 {
		n := min(size, 16<<10)
		c.WriteData(id, false, make([]byte, n))
		size -= n
	}
	return id
}

// resets returns how many streams were reset, and the codes.
func (c *budgetClient) resets() map[http2.ErrCode]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[http2.ErrCode]int{}
	for _, code := range c.code {
		n[code]++
	}
	return n
}

// dial leads to one that says all again, one that reads nothing, one that does so after a millisecond, one that is never connected,
// or by the tunnel to one that answers with 200 KiB.
func (b *budgetBed) dial(ctx context.Context, r gateway.Request) (net.Conn, error) {
	near, far := net.Pipe()
	b.Cleanup(func() { far.Close() })
	switch r.Address {
	case "echo:1":
		go io.Copy(far, far)
	case "late:1":
		time.Sleep(time.Millisecond)
	case "fails:1":
		return nil, syscall.ECONNREFUSED
	case "never:1":
		b.never.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	case "answers:1":
		st, err := b.session.Open(ctx, nil)
		if err == nil {
			st.SetShare(1, budget.Holder{})
		}
		return st, err
	}
	return near, nil
}

// TestBudget: however much one client lets wait, little more than the bound is held. It loses its own
// streams, and learns why; another one, which holds little, loses nothing.
func TestBudget(t *testing.T) {
	const bound = 1 << 20
	for _, tt := range []struct {
		name   string
		more   func(b *budgetBed)
		rounds int
		slack  int  // beyond the bound
		deaf   bool // no code reaches the client
	}{
		{"its targets read nothing", func(b *budgetBed) { b.greedy.connect("deaf", 44<<10) }, 40, 0, false},
		{"one byte on each stream", func(b *budgetBed) { b.greedy.connect("deaf", 1) }, 130, 0, false},
		{"before the answer", func(b *budgetBed) { b.greedy.connect("never", 16<<10) }, 80, 0, false},
		{"before the answer, by HTTP/1", func(b *budgetBed) { b.connectByHTTP1("never") }, 80, 0, true},
		{"its target reads nothing, by HTTP/1", func(b *budgetBed) { b.connectByHTTP1("late") }, 80, 0, true},
		{"each on a connection", func(b *budgetBed) { b.client("ann", -1).connect("deaf", 44<<10) }, 40, 0, true},
		// A client that takes nothing has 5 seconds.
		{"asks, and reads nothing", func(b *budgetBed) {
			c := b.client("ann", 0)
			c.connect("echo", 0)
			for range 3000 {
				c.WritePing(false, [8]byte{})
			}
		}, 40, 8 * 128 << 10, true},
		{"opens no window for answers", func(b *budgetBed) { b.greedy.connect("answers", 0) }, 40, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, end := newBudgetBed(t, bound)
				modest := b.client("bob", -1)
				modest.connect("deaf", 20<<10)
				echo := modest.connect("echo", 0)
				b.greedy = b.client("ann", -1)
				b.greedy.connect("echo", 0) // so that it is let in
				for i := range tt.rounds {
					tt.more(b)
					synctest.Wait()
					time.Sleep(time.Second)
					if held := budget.Held(&b.shared); held > bound+tt.slack {
						t.Errorf("round %d: %d bytes are held, want %d at most", i, held, bound+tt.slack)
					}
					modest.WriteData(echo, false, []byte("x"))
					if n := <-modest.data; n != 1 {
						t.Fatalf("the other client has got %d bytes, want 1", n)
					}
				}
				if got := modest.resets(); len(got) > 0 {
					t.Errorf("the other client has lost %v", got)
				}
				if got := b.greedy.resets(); !tt.deaf && (got[http2.ErrCodeEnhanceYourCalm] == 0 || len(got) > 1) {
					t.Errorf("the greedy got %v, want only %v", got, http2.ErrCodeEnhanceYourCalm)
				}
				if lost := b.ended.Load(); b.asked > 0 && (lost == 0 || lost > int64(b.asked)/2) {
					t.Errorf("%d of %d connections were lost, want some", lost, b.asked)
				}
				end()
				time.Sleep(time.Minute)
				if held := budget.Held(&b.shared); held != 0 {
					t.Errorf("%d bytes are left", held)
				}
			})
		})
	}
}
