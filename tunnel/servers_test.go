package tunnel_test

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// A WELCOME says the server's name. An agent that holds a session with that one
// is refused, whatever else it holds; with others it is welcome.
func TestHeld(t *testing.T) {
	held := func(names ...string) []byte {
		fields := []any{uint16(3), uint64(1)}
		for _, name := range names {
			fields = append(fields, uint16(19), []byte(name))
		}
		return rawMessage(1, fields...)
	}
	for _, tt := range []struct {
		name  string
		hello []byte
		kind  uint16
		code  uint64
	}{
		{"none", rawHello(), 2, 0},
		{"another", held("b", "A"), 2, 0},
		{"this one", held("b", "a"), 3, 41},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{Name: "a"})
				_, session := b.rawSession(b.enrolled())
				control, err := session.Open(t.Context(), tt.hello)
				if err != nil {
					t.Fatal(err)
				}
				control.SetReadDeadline(time.Now().Add(time.Minute))
				kind, code, servers, err := readServers(control)
				if kind != tt.kind || code != tt.code || err != nil {
					t.Errorf("got kind %d, code %d, %v, want %d, %d", kind, code, err, tt.kind, tt.code)
				}
				if kind == 2 && !slices.Equal(servers, []string{"a"}) {
					t.Errorf("got the servers %q, want its own", servers)
				}
			})
		})
	}
}

// A name that is not given is another one each time; one that can't be is
// an error.
func TestServerName(t *testing.T) {
	var names []string
	for range 2 {
		b := newBed(t, &tunnel.Server{})
		_, session := b.rawSession(b.enrolled())
		control, err := session.Open(t.Context(), rawHello())
		if err != nil {
			t.Fatal(err)
		}
		_, _, servers, err := readServers(control)
		if err != nil || len(servers) != 1 || len(servers[0]) < 10 {
			t.Fatalf("got %q, %v, want a name", servers, err)
		}
		names = append(names, servers...)
	}
	if names[0] == names[1] {
		t.Errorf("got %q twice", names[0])
	}
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	s := &tunnel.Server{Authority: authority, Name: "two words"}
	if _, err := s.Invite(t.Context(), testCluster, 0); codeOf(err) != tunnel.CodeConfig {
		t.Errorf("got %v, want an error of the configuration", err)
	}
}

// What changes after an agent's WELCOME was made, and before the session is there
// to be told, is said right after; what did not change, is not.
func TestChangedSinceWelcome(t *testing.T) {
	const welcome, roots, servers = 2, 7, 10
	tell := func(t *testing.T, s *tunnel.Server, names ...string) {
		t.Helper()
		if err := s.TellServers(names...); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name    string
		before  []string
		between func(*testing.T, *tunnel.Server)
		first   []string
		kind    uint16 // of what comes next; zero: nothing
		want    []string
	}{
		{"nothing", []string{"a", "b"}, func(*testing.T, *tunnel.Server) {}, []string{"a", "b"}, 0, nil},
		{"a server came", []string{"a"}, func(t *testing.T, s *tunnel.Server) { tell(t, s, "a", "b") }, []string{"a"}, servers, []string{"a", "b"}},
		{"a server left", []string{"a", "b"}, func(t *testing.T, s *tunnel.Server) { tell(t, s, "a") }, []string{"a", "b"}, servers, []string{"a"}},
		{"it drains", []string{"a", "b"}, func(t *testing.T, s *tunnel.Server) { tell(t, s, "b") }, []string{"a", "b"}, servers, []string{"b"}},
		{"it drained before", []string{"b"}, func(*testing.T, *tunnel.Server) {}, []string{"a", "b"}, servers, []string{"b"}},
		{"the authority", []string{"a"}, func(t *testing.T, s *tunnel.Server) {
			setAuthority(t, s, signing(newAuthority(t), s.Authority))
		}, []string{"a"}, roots, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{Name: "a"})
				credentials := b.enrolled()
				tell(t, b.s, tt.before...)
				near, far := net.Pipe()
				served := make(chan error, 1)
				go func() {
					served <- b.s.ServeGreeted(t.Context(), far, func() { tt.between(t, b.s) })
				}()
				carrier, err := tunnel.RawCarrier(t.Context(), near, credentials)
				if err != nil {
					t.Fatal(err)
				}
				session := mux.Client(carrier, nil)
				control, err := session.Open(t.Context(), rawHello())
				if err != nil {
					t.Fatal(err)
				}
				control.SetReadDeadline(time.Now().Add(time.Minute))
				if kind, _, got, err := readServers(control); kind != welcome || err != nil || !slices.Equal(got, tt.first) {
					t.Errorf("got kind %d, %q, %v, want WELCOME and %q", kind, got, err, tt.first)
				}
				if kind, _, got, err := readServers(control); kind != tt.kind || !slices.Equal(got, tt.want) {
					t.Errorf("got kind %d, %q, %v, want %d and %q", kind, got, err, tt.kind, tt.want)
				}
				session.Close()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
