package tunnel_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A cluster without an agent is known for as long as one may come back, and
// not longer.
func TestClusterIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		credentials := &tunnel.MemoryCredentials{}
		for _, stay := range []time.Duration{time.Minute, 5 * time.Hour} { // renewed in five
			a := b.agent(&tunnel.Agent{Credentials: credentials})
			time.Sleep(stay)
			expires := b.sessions()[0].Expires
			a.stop()
			for _, step := range []struct {
				until time.Duration // the certificate ends
				want  int
			}{{20 * time.Minute, 1}, {time.Second, 1}, {-time.Second, 0}} {
				time.Sleep(time.Until(expires) - step.until)
				if got := len(b.s.Status().Clusters); got != step.want {
					t.Errorf("got %d clusters %v before the certificate ends, want %d", got, step.until, step.want)
				}
				if got := b.s.KnownClusters(); got != step.want {
					t.Errorf("got %d clusters in memory, want %d", got, step.want)
				}
			}
			credentials = &tunnel.MemoryCredentials{}
		}
	})
}

// Clusters that come and go do not pile up, even if nobody asks for the Status.
func TestClustersDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		staying := b.agent(&tunnel.Agent{})
		most := 0
		for i := range 200 {
			inv, err := b.s.Invite(t.Context(), fmt.Sprintf("default/c%d", i), 0)
			if err != nil {
				t.Fatal(err)
			}
			b.agent(&tunnel.Agent{Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil }}).stop()
			time.Sleep(10 * time.Minute)
			most = max(most, b.s.KnownClusters())
		}
		if most > 50 {
			t.Errorf("got %d clusters in memory, want those of the last hour and some", most)
		}
		if got := len(b.sessions()); got != 1 {
			t.Errorf("got %d sessions of the cluster that stays, want one", got)
		}
		staying.stop()
	})
}
