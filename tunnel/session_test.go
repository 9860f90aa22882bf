package tunnel_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// The same agent connects again while the server still has its older session:
// the new one gets the dials, the old one ends with its last stream.
func TestNewestSessionWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		creds := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: creds, FirstBackoff: time.Hour, MaxBackoff: time.Hour})
		busy := b.echo()
		began := time.Now()
		b.agent(&tunnel.Agent{Credentials: creds})
		for range 20 {
			b.echo().Close()
		}
		synctest.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the newest session had the dials after %v, want a second", took)
		}
		got := b.sessions()
		if len(got) != 2 || !got[0].Draining || got[0].Dials != 1 || got[0].Streams != 1 || got[1].Draining || got[1].Dials != 20 {
			t.Fatalf("got %+v, want one that drains with its stream and one with 20 dials", got)
		}
		time.Sleep(10 * time.Minute)
		checkEcho(t, busy)
		busy.Close()
		time.Sleep(time.Second)
		if got := b.sessions(); len(got) != 1 || got[0].Draining {
			t.Errorf("got %+v, want the newest alone", got)
		}
	})
}

// Many sessions of one agent that register at once: one is left to dial, and
// it is the newest.
func TestSessionsRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		creds := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: creds, FirstBackoff: time.Hour, MaxBackoff: time.Hour})
		const n = 8
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { b.start(&tunnel.Agent{Credentials: creds, FirstBackoff: time.Hour, MaxBackoff: time.Hour}) })
		}
		wg.Wait()
		for range n {
			b.await()
		}
		time.Sleep(time.Second)
		got := b.sessions()
		if len(got) != 1 || got[0].Draining || got[0].ID != "10" && got[0].ID != "9" {
			t.Errorf("got %+v, want the newest alone", got)
		}
		b.echo().Close()
	})
}

// Two processes with the same credentials supersede each other for ever, but
// not fast.
func TestCopiedIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		creds := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: creds})
		b.agent(&tunnel.Agent{Credentials: creds})
		before := len(b.w.times())
		time.Sleep(20 * time.Minute)
		if n := len(b.w.times()) - before; n < 10 || n > 200 {
			t.Errorf("got %d sessions in 20 minutes, want one each 6 s at most", n)
		}
	})
}

// An agent that registers while the server drains is told to leave, too.
func TestRegisterWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{Grace: time.Hour})
		b.agent(&tunnel.Agent{})
		busy := b.echo()
		block := make(chan struct{})
		b.w.wrap = func(c net.Conn) net.Conn { return &askedConn{Conn: c, asked: func() { <-block }} }
		b.start(&tunnel.Agent{})
		synctest.Wait()
		b.stopServe()
		synctest.Wait()
		close(block)
		busy.Close()
		began := time.Now()
		if err := <-b.served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("Serve drained for %v, want until its agents had left", took)
		}
	})
}

// A session that is overtaken on its way to the registry is not the newest.
func TestOvertakenSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		creds := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: creds, FirstBackoff: time.Hour, MaxBackoff: time.Hour})
		block := make(chan struct{})
		b.w.wrap = func(c net.Conn) net.Conn { return &askedConn{Conn: c, asked: func() { <-block }} }
		b.start(&tunnel.Agent{Credentials: creds, FirstBackoff: time.Hour, MaxBackoff: time.Hour})
		synctest.Wait()
		b.w.wrap = nil
		b.agent(&tunnel.Agent{Credentials: creds, FirstBackoff: time.Hour, MaxBackoff: time.Hour})
		both := b.sessions() // or one: the first session leaves
		newest := both[len(both)-1].ID
		close(block)
		b.await()
		time.Sleep(time.Second)
		if got := b.sessions(); len(got) != 1 || got[0].ID != newest {
			t.Errorf("got %+v, want session %s alone", got, newest)
		}
	})
}

// An agent that is revoked while it connects is not let in.
func TestRevokeWhileConnecting(t *testing.T) {
	t.Run("the agent", func(t *testing.T) { testRevokeWhileConnecting(t, false) })
	t.Run("the cluster", func(t *testing.T) { testRevokeWhileConnecting(t, true) })
}

func testRevokeWhileConnecting(t *testing.T, all bool) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{enter: make(chan struct{}), leave: make(chan struct{}), cluster: all}
		refused := make(chan error, 100)
		b := newBed(t, &tunnel.Server{Store: store, Hooks: tunnel.Hooks{Refused: refusals(refused)}})
		creds := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: creds})
		id := tunnel.Identity{Cluster: testCluster, Agent: b.sessions()[0].Agent}
		inv := b.invite() // asks the Store, too
		store.slow.Store(true)
		b.start(&tunnel.Agent{Credentials: creds, Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil }})
		<-store.enter
		revoke := func() error { return b.s.Revoke(t.Context(), id) }
		if all {
			revoke = func() error { return b.s.RevokeCluster(t.Context(), testCluster) }
		}
		if err := revoke(); err != nil {
			t.Fatal(err)
		}
		close(store.leave)
		if err := <-refused; codeOf(err) != tunnel.CodeRevoked {
			t.Errorf("got %v, want revoked", err)
		}
		synctest.Wait()
		if got := b.sessions(); len(got) != 0 {
			t.Errorf("got %+v, want no session", got)
		}
	})
}

// An authority that is set while an agent connects is told to it.
func TestSetAuthorityWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		b := newBed(t, &tunnel.Server{})
		// The server asks for the address when it has said WELCOME, and before
		// it registers the session.
		b.w.wrap = func(c net.Conn) net.Conn { return &askedConn{Conn: c, asked: func() { <-block }} }
		next, err := tunnel.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		next.Trusted = append(next.Trusted, b.s.Authority.Certificate)
		creds := &tunnel.MemoryCredentials{}
		b.start(&tunnel.Agent{Credentials: creds})
		synctest.Wait()
		if err := b.s.SetAuthority(next); err != nil {
			t.Fatal(err)
		}
		close(block)
		b.await()
		synctest.Wait()
		got, err := creds.Load(t.Context())
		if err != nil || len(got.Roots) != 2 {
			t.Errorf("got %d authorities, %v, want 2", len(got.Roots), err)
		}
	})
}

// What the agent has written when its last stream ends is received.
func TestLastStreamIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		for range 8 {
			a := b.agent(&tunnel.Agent{})
			conn, err := b.dial("x:13")
			if err != nil {
				t.Fatal(err)
			}
			go a.stop()
			if n, err := io.Copy(io.Discard, conn); n != 1<<20 || err != nil {
				t.Fatalf("got %d bytes, %v, want 1 MiB", n, err)
			}
			conn.Close()
			synctest.Wait()
		}
	})
}

// The counts of Disconnected are final.
func TestDisconnectedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan tunnel.SessionInfo, 1)
		b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Disconnected: func(i tunnel.SessionInfo, _ error) { gone <- i }}})
		a := b.agent(&tunnel.Agent{})
		b.echo().Close()
		if _, err := b.dial("echo:1"); err == nil {
			t.Fatal("got a connection")
		}
		a.stop()
		if i := <-gone; i.Dials != 2 || i.Failed != 1 || i.BytesIn < 5 || i.BytesOut < 5 || i.Streams != 0 {
			t.Errorf("got %+v, want 2 dials, one failed, and bytes", i)
		}
	})
}

// askedConn calls asked before it says its peer's address, but for the first
// time, when it gets its place.
type askedConn struct {
	net.Conn
	asked  func()
	placed atomic.Bool
}

func (c *askedConn) RemoteAddr() net.Addr {
	if c.placed.Swap(true) {
		c.asked()
	}
	return c.Conn.RemoteAddr()
}
