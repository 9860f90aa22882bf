package e2e

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// A proxy that is down is passed over, and one that refuses is not.
func TestFailover(t *testing.T) {
	b := sharedBed(t)
	down := hop{URL: "http://" + net.JoinHostPort(bed.ProxyIP, "9")}
	stranger := *b.Squid.URL()
	stranger.User = url.UserPassword(bed.ProxyUser, "wrong")
	works := hop{URL: b.Dante.URL().String()}
	for _, tt := range []struct {
		name    string
		hops    []hop
		banners int
		want    failure
	}{
		{"first is down", []hop{down, works}, 20, failure{}},
		{"first refuses", []hop{{URL: stranger.String()}, works}, 0,
			failure{Op: "failover", Phase: dialer.PhaseAuth, Status: 407, Text: "member 1: "}},
		{"all are down", []hop{down, down}, 0,
			failure{Op: "failover", Phase: dialer.PhaseTCP, Refused: true, Text: "member 2: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			input := throughInput{Hops: tt.hops, Failover: true, Address: b.SSH.Address(), Count: 20, Parallel: 4}
			var got throughAnswer
			if err := b.Network.Client.Play(t.Context(), "through", input, &got); err != nil {
				t.Fatal(err)
			}
			if got.Banners != tt.banners {
				t.Errorf("got %d banners, want %d; lost: %q", got.Banners, tt.banners, got.Lost)
			}
			if got.Failure == nil {
				got.Failure = &failure{}
			}
			t.Log(got.Failure.Text)
			if !strings.Contains(got.Failure.Text, tt.want.Text) {
				t.Errorf("got %q, want it to contain %q", got.Failure.Text, tt.want.Text)
			}
			f := *got.Failure
			f.Text, f.SquidError, tt.want.Text = "", "", ""
			if f != tt.want {
				t.Errorf("got %+v, want %+v", f, tt.want)
			}
		})
	}
}
