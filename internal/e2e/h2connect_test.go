package e2e

import "testing"

// The bed's haproxy has CONNECT over HTTP/2: a thousand tunnels, and one
// connection for them all.
func TestH2Connect(t *testing.T) {
	b := sharedBed(t)
	r := route{log: b.HAProxy.Log}
	logged := []string{"port=" + b.HAProxy.TLSURL().Port() + " ", "status=200", " CONNECT " + b.SSH.Address() + " HTTP/2.0"}
	before, err := r.lines(logged)
	if err != nil {
		t.Fatal(err)
	}
	input := throughInput{
		Hops:    []hop{{b.HAProxy.TLSURL().String(), b.HAProxy.CA.CertPEM()}},
		HTTP2:   true,
		Address: b.SSH.Address(), Count: bannerCount, Parallel: bannerParallel,
	}
	var got throughAnswer
	if err := b.Network.Client.Play(t.Context(), "through", input, &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d banners, %d lost, %d connections, %.1f s", got.Banners, len(got.Lost), got.Connections, got.Seconds)
	if got.Banners != bannerCount || len(got.Lost) > 0 {
		t.Errorf("got %d banners, want %d; lost: %q", got.Banners, bannerCount, got.Lost[:min(5, len(got.Lost))])
	}
	if got.Connections != 1 {
		t.Errorf("got %d connections to the proxy, want 1", got.Connections)
	}
	r.waitLogged(t, "the tunnels", len(before), bannerCount, logged)
}
