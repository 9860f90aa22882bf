package e2e

import "testing"

// bannerCount is how many connections each way has to carry, and bannerParallel
// how many of them at a time. Some wait: microsocks sends its answer and the
// banner in two small packets, the second when the first is acknowledged.
const bannerCount, bannerParallel = 1000, 16

// sshd speaks first, and its banner may be in the same packet as the proxy's
// answer: a dialer that reads too much loses it, now and then. One that reads
// with http.ReadResponse and drops its buffer lost 28 of 1,000 at squid, and 371
// at tinyproxy.
func TestBanners(t *testing.T) {
	b := sharedBed(t)
	type way struct {
		name string
		hops []hop
	}
	ways := []way{{"squid-https, dante", chain(b)}}
	for _, r := range routes(b) {
		ways = append(ways, way{r.name, []hop{r.hop()}})
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			input := throughInput{Hops: w.hops, Address: b.SSH.Address(), Count: bannerCount, Parallel: bannerParallel}
			var got throughAnswer
			if err := b.Network.Client.Play(t.Context(), "through", input, &got); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d banners, %d lost, %.1f s", got.Banners, len(got.Lost), got.Seconds)
			if got.Banners != bannerCount || len(got.Lost) > 0 {
				t.Errorf("got %d banners, want %d; lost: %q", got.Banners, bannerCount, got.Lost[:min(5, len(got.Lost))])
			}
		})
	}
}
