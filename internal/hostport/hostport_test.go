package hostport_test

import (
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/hostport"
)

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]string{
		"a:1": "", "münchen.example:443": "", "192.0.2.1:65535": "", "[2001:db8::1]:443": "", "[fe80::1%eth0]:443": "", "a_b.example:1": "",
		"":               "it has no port, or is not HOST:PORT",
		"a":              "it has no port, or is not HOST:PORT",
		"2001:db8::1":    "it has no port, or is not HOST:PORT",
		":1":             "it has no host",
		"a b:1":          "its host is neither",
		"u:s3cr3t@b:1":   "it has no port, or is not HOST:PORT",
		"s3cr3t@b:1":     "its host is neither",
		"[fe80::1]:8443": "it is link-local",
		"a:0":            "its port is not a number",
		"a:65536":        "its port is not a number",
		"a:http":         "its port is not a number",
		"a:":             "its port is not a number",
	} {
		err := hostport.CheckAddress(address)
		if (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t")) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
}
