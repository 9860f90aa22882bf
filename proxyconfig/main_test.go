package proxyconfig_test

import (
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/proxyconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden is the list of Giant Swarm's RFC.
const golden = "cluster.local,100.64.0.0/13,100.96.0.0/11,178.170.32.59,172.16.0.0/16,internal.corpdomain.net,example.com,svc,127.0.0.1,localhost"

// rfcProxy is the proxy of Giant Swarm's RFC.
const rfcProxy = "http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128"

// hostile is a password of all that something takes for itself.
const hostile = "p+&'\"%@:\\$` #;!(){}|<>?/,=*~^[]%41w"

// urls have a password of special characters: as many as a URL takes as they
// are, and all of them percent-encoded.
var urls = []struct{ name, url, password string }{
	{"RFC", rfcProxy, "mySuperSecretPassword"},
	{"encoded", "http://us%40er:" + encode(hostile) + "@proxy.test:3128", hostile},
	{"net/url", "http://" + url.UserPassword("us@er", hostile).String() + "@proxy.test:3128", hostile},
	{"raw", "http://us%40er:-._~!$&'*+,;=()%25%22$@proxy.test:3128", "-._~!$&'*+,;=()%\"$"},
	{"IPv6", "http://user:pass@[2001:db8::1]:3128", "pass"},
}

// encode percent-encodes everything but letters and digits.
func encode(text string) string {
	const hex = "0123456789ABCDEF"
	var out []byte
	for _, b := range []byte(text) {
		if b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' {
			out = append(out, b)
		} else {
			out = append(out, '%', hex[b>>4], hex[b&15])
		}
	}
	return string(out)
}

func config(proxy string) proxyconfig.Config {
	return proxyconfig.Config{HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: golden}
}

// must fails the test for an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
