package e2e

import (
	"slices"
	"strconv"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// chain is dante behind squid with TLS.
func chain(b *bed.Bed) []hop {
	return []hop{
		{b.Squid.TLSURL().String(), b.Squid.CA.CertPEM()},
		{b.Dante.URL().String(), nil},
	}
}

// A Client whose route is dante, and whose way to dante is squid. Each proxy's
// log shows the other: squid connected to dante, and dante to the API server
// for somebody in its own namespace.
func TestClientChain(t *testing.T) {
	b := sharedBed(t)
	squid := route{log: b.Squid.Log}
	dante := danteRoute(b)
	toDante := []string{"tls=TLS/1.3 ", "client-certificate=- ", "status=200", " CONNECT " + b.Dante.URL().Host + " ", "user=" + bed.ProxyUser}
	fromSquid := []string{
		"pass(1): tcp/connect [", "username%" + bed.ProxyUser + "@" + bed.ProxyIP + ".",
		" " + b.Kube.Host() + "." + strconv.Itoa(int(b.Kube.Port())),
	}
	squidBefore, err := squid.lines(toDante)
	if err != nil {
		t.Fatal(err)
	}
	danteBefore, err := dante.lines(fromSquid)
	if err != nil {
		t.Fatal(err)
	}
	input := clientInput{
		Kubeconfig: secretFor(t, b, "bed", dante).Data[kubeconfig.SecretKey],
		Forward:    chain(b)[:1],
		Namespace:  "client-chain",
	}
	var got clientAnswer
	if err := b.Network.Client.Play(t.Context(), "client", input, &got, "HTTPS_PROXY=http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", got)
	if got.User != "kubernetes-admin" || len(got.Watched) != 2 {
		t.Errorf("got user %q, watched %q", got.User, got.Watched)
	}
	if want := []string{"tcp", "tls", "connect", "connect", "auth", "connect"}; !slices.Equal(got.Phases, want) {
		t.Errorf("got phases %q, want %q", got.Phases, want)
	}
	squid.waitLogged(t, "squid to dante", len(squidBefore), 1, toDante)
	dante.waitLogged(t, "dante to the API server", len(danteBefore), 1, fromSquid)
}
