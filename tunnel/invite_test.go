package tunnel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/internal/test/storetest"
	"github.com/causewayproject/causeway/tunnel"
)

// TestInviteAgents: of more agents than an invitation is for, so many enrol, whatever
// their number at the same time; and each of them again.
func TestInviteAgents(t *testing.T) {
	const invited, come = 3, 8
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			pair := open(t)
			one := newTunnelServer(t, pair[0])
			other := newTunnelServer(t, pair[1])
			other.authority.Store(one.authority.Load())
			inv := must(one.registrar.InviteAgents(t.Context(), "prod", invited, 0))(t)
			if inv.Agents != invited {
				t.Errorf("got an invitation for %d agents, want %d", inv.Agents, invited)
			}
			var mu sync.Mutex
			var agents sync.WaitGroup
			codes, names := map[tunnel.Code]int{}, map[string]bool{}
			for n := range come {
				s, key := []*tunnelServer{one, other}[n%2], newKey(t)
				agents.Go(func() {
					for range 2 {
						_, id, err, _ := s.enroll(inv, key)
						mu.Lock()
						codes[codeIn(err)]++
						if err == nil {
							names[id.Agent] = true
						} else if !strings.HasSuffix(err.Error(), "it was for 3 agents") {
							t.Errorf("got %v, want the number of agents in it", err)
						}
						mu.Unlock()
					}
				})
			}
			agents.Wait()
			if want := map[tunnel.Code]int{0: 2 * invited, tunnel.CodeTokenUsed: 2 * (come - invited)}; !cmp.Equal(codes, want) || len(names) != invited {
				t.Errorf("got %v, %d agents; want %v, %d", codes, len(names), want, invited)
			}
		})
	}
}

// TestInviteAgentsRefuses: nothing is in the Store then.
func TestInviteAgentsRefuses(t *testing.T) {
	store := &tunnel.MemoryStore{}
	s := newTunnelServer(t, store)
	for _, agents := range []int{-1, 0, 1001} {
		if inv, err := s.registrar.InviteAgents(t.Context(), "prod", agents, 0); codeIn(err) != tunnel.CodeConfig || inv.Token != "" {
			t.Errorf("%d agents: got %v, want %v", agents, err, tunnel.CodeConfig)
		}
	}
	if got := must(recordsOf(store).Tokens(t.Context(), "prod"))(t); len(got) > 0 {
		t.Errorf("got %v in the store", got)
	}
}

// TestInvitations: what can be used is shown again, by a server that has never seen it,
// and is the same token.
func TestInvitations(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			pair := open(t)
			one, other := &tunnel.Server{Authority: newAuthority(t), Store: pair[0]}, &tunnel.Server{Store: pair[1]}
			other.Authority = one.Authority
			if err := one.RevokeCluster(t.Context(), "prod"); err != nil {
				t.Fatal(err)
			}
			invite := func(cluster string, agents int, life time.Duration) tunnel.Invitation {
				return must(one.InviteAgents(t.Context(), cluster, agents, life))(t)
			}
			show := func() []tunnel.Invitation { return must(other.Invitations(t.Context(), "prod"))(t) }
			if got := show(); len(got) != 0 {
				t.Errorf("got %v, want none", got)
			}
			used, several := invite("prod", 1, 0), invite("prod", 3, 2*time.Hour)
			invite("staging", 1, 0)
			last := invite("prod", 1, 0)
			for _, inv := range []tunnel.Invitation{used, several} {
				spendToken(t, pair[0], inv.Token, "key")
			}
			got := show()
			if len(got) != 2 || got[0].Agents != 2 || got[1].Agents != 1 || !got[0].Expires.Equal(several.Expires) || got[0].Pin != several.Pin || got[0].Cluster != "prod" {
				t.Fatalf("got %v, want those for several and the last one", got)
			}
			for n, was := range []tunnel.Invitation{several, last} {
				before, _ := tokenParts(t, was.Token)
				if now, _ := tokenParts(t, got[n].Token); !cmp.Equal(now, before) {
					t.Errorf("got another token than was made")
				}
			}
			if err := other.RevokeCluster(t.Context(), "prod"); err != nil {
				t.Fatal(err)
			}
			if got := show(); len(got) != 0 {
				t.Errorf("got %v after the revocation of the cluster, want none", got)
			}
		})
	}
}

// TestDirStoreFormer reads the files of the version that knew tokens for one agent only.
func TestDirStoreFormer(t *testing.T) {
	s := tunnel.DirStore{Dir: t.TempDir()}
	dir := filepath.Join(s.Dir, "tokens")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tok := storetest.Token(0, time.Now().UTC())
	text := fmt.Sprintf(`{"cluster":%q,"created":%s,"expires":%s}`, tok.Cluster, jsonOf(t, tok.Created), jsonOf(t, tok.Expires))
	write(tok.ID+".json", text)
	write(tok.ID+".key", "former")
	open := storetest.Token(1, tok.Created)
	write(open.ID+".json", text)
	tok.Keys, open.Keys = []string{"former"}, []string{"now"}
	for _, want := range []tunnel.Token{tok, open} {
		if got := must(recordsOf(s).ClaimToken(t.Context(), want.ID, "now"))(t); !cmp.Equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := must(recordsOf(s).Tokens(t.Context(), tok.Cluster))(t); len(got) != 2 {
		t.Errorf("got %+v, want both", got)
	}
}

func jsonOf(t *testing.T, v any) string { return string(must(json.Marshal(v))(t)) }

// spendToken spends the token for the key, without an agent.
func spendToken(t testing.TB, store tunnel.Store, token, key string) {
	t.Helper()
	must(recordsOf(store).ClaimToken(t.Context(), tokenID(t, token), key))(t)
}
