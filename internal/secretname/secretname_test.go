package secretname_test

import (
	"testing"

	"github.com/causewayproject/causeway/internal/secretname"
)

func TestTaken(t *testing.T) {
	for name, want := range map[string]string{
		"s1-ca": "-ca", "s2-etcd": "-etcd", "s-sa": "-sa", "s-proxy": "-proxy", "s-apiserver-etcd-client": "-apiserver-etcd-client",
		"s-kubeconfig": "-kubeconfig", "s-tunnel-agent": "-tunnel-agent", "s-tunnel-route": "-tunnel-route", "s-kubeconfig-route-records": "-route-records", "s-cluster-values": "-cluster-values",
		"s-proxy-override": "-proxy-override", "bootstrap-token-abcdef": "bootstrap-token-",
		"s-proxied": "", "s-ca-2": "", "ca": "", "my-bootstrap-token-abcdef": "", "africa": "",
	} {
		if got := secretname.Taken(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
