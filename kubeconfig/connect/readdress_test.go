package connect_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// Exec and port-forward lead to the new server, though made of an old
// rest.Config, and so does the bridge by an old address.
func TestFollowBridge(t *testing.T) {
	f := newFollowed(t)
	config := f.Config()
	bridge, err := bridgeOf(f.Client)
	if err != nil {
		t.Fatal(err)
	}
	f.use(t, withToken(buildAt(t, f.two, otherAddress), "new"))
	newKubelet(t, f.two)
	bySPDY, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, subresource(t, config, "exec"))
	checkCat(t, bySPDY, err)
	byWebSocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, subresource(t, config, "exec").String())
	checkCat(t, byWebSocket, err)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	checkForward(t, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, subresource(t, config, "portforward")))
	if got := f.two.lastHeader().Get("Authorization"); got != "Bearer new" {
		t.Errorf("got Authorization %q, want the new token", got)
	}
	for _, address := range []string{apiAddress, otherAddress} {
		if err := through(bridge, address); err != nil {
			t.Errorf("the bridge to %s: %v", address, err)
		}
	}
	if err := through(bridge, "other.test:6443"); err == nil {
		t.Error("the bridge leads elsewhere")
	}
	if diff := cmp.Diff(slices.Repeat([]string{otherAddress}, 5), f.network.asked()); diff != "" {
		t.Errorf("what was dialed (-want +got):\n%s", diff)
	}
}
