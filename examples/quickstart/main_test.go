package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStandIns(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // must not matter
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		`is a stand-in`,
		`HTTP proxy +v1\.36\.0-stand-in, readyz ok, 4 namespaces, watch saw "default"\n`,
		`HTTPS proxy +v1\.36\.0-stand-in, readyz ok, 4 namespaces, watch saw "default"\n`,
		`SOCKS5 proxy +v1\.36\.0-stand-in, readyz ok, 4 namespaces, watch saw "default"\n`,
		`TUNNEL +v1\.36\.0-stand-in, readyz ok, 4 namespaces, watch saw "default"\n`,
		`no proxy +dialer: 192\.0\.2\.10:6443: tcp: `,
		`HTTP proxy, wrong password .* 407 `,
		`HTTPS proxy, wrong password .* 407 `,
		`SOCKS5 proxy, wrong password .* refused the user name and password`,
		`TUNNEL, wrong ticket .* 407 .*the credentials are missing or wrong`,
		`Try next:`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("want a match of %s", want)
		}
	}
	if strings.Contains(out.String(), "w/rd") || strings.Contains(out.String(), "w%2Frd") {
		t.Error("the output shows the password")
	}
	if t.Failed() {
		t.Logf("got\n%s", &out)
	}
}
