package proxyconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/proxyconfig"
)

// What Build writes, ReadValues reads.
func TestReadsWhatItWrites(t *testing.T) {
	for i, u := range append(urls, urls...) {
		v := rfcValues(t)
		v.Config = config(u.url)
		v.Layout = proxyconfig.Layout(i / len(urls))
		o := must(v.Build())(t)
		for _, documents := range [][][]byte{
			{[]byte(o.ConfigMap.Data["values"]), o.Secret.Data["values"]}, {o.Secret.Data["values"]},
		}[:2-v.Layout] {
			if got := must(proxyconfig.ReadValues(documents...))(t); got != v.Config {
				t.Errorf("%s: got %v, want %v", u.name, got, v.Config)
			}
		}
	}
}

func TestReadValues(t *testing.T) {
	want := proxyconfig.Config{HTTPProxy: "http://a:1", HTTPSProxy: "http://b:2", NoProxy: "c"}
	for _, c := range []struct{ name, text string }{
		{"ours", "cluster: {proxy: {http: 'http://a:1', https: 'http://b:2', noProxy: c}}"},
		{"the draft's", "cluster: {proxy: {httpProxy: 'http://a:1', httpsProxy: 'http://b:2', noProxy: c}}"},
		{"the installation's", "proxy: {http: 'http://a:1', https: 'http://b:2', noProxy: c}"},
		{"chart cluster's", "global: {connectivity: {proxy: {enabled: true, httpProxy: 'http://a:1', httpsProxy: 'http://b:2', noProxy: c}, network: {}}, metadata: {}}"},
		{"chart cluster's, without enabled", "global: {connectivity: {proxy: {httpProxy: 'http://a:1', httpsProxy: 'http://b:2', noProxy: c}}}"},
		{"chart cluster's, off, beside another", "global: {connectivity: {proxy: {enabled: false, httpProxy: 'http://x:1'}}}\nproxy: {http: 'http://a:1', https: 'http://b:2', noProxy: c}"},
		{"cert-manager's", "http_proxy: http://a:1\nhttps_proxy: http://b:2\nno_proxy: c\nother: {a: 1}"},
		{"env", "env: [{name: HTTP_PROXY, value: 'http://a:1'}, {name: https_proxy, value: 'http://b:2'}, {name: NO_PROXY, value: c}, {name: X, value: x}]"},
		{"two that agree", "http_proxy: http://a:1\nproxy: {http: 'http://a:1', https: 'http://b:2', noProxy: c}"},
		{"env by a Secret", "env: [{name: HTTP_PROXY, valueFrom: {secretKeyRef: {name: x, key: y}}}]\nproxy: {http: 'http://a:1', https: 'http://b:2', noProxy: c}"},
	} {
		if got := must(proxyconfig.ReadValues([]byte(c.text)))(t); got != want {
			t.Errorf("%s: got %v, want %v", c.name, got, want)
		}
	}
	if got := must(proxyconfig.ReadValues())(t); !got.IsZero() {
		t.Errorf("got %v of nothing, want nothing", got)
	}
}

// A slip in the section of the proxies takes no proxy away from anybody.
func TestReadValuesRefusesSlips(t *testing.T) {
	const section = "{http: 'http://u:SECRET@a:1', https: 'http://u:SECRET@a:1', noProxy: b}"
	for name, text := range map[string]string{
		"a key of proxy":         "proxy: {htp: 'http://u:SECRET@a:1', https: 'http://u:SECRET@a:1'}",
		"a key in another case":  "proxy: {http: 'http://u:SECRET@a:1', noproxy: b}",
		"a key of cluster.proxy": "cluster: {proxy: {no_proxy: b}}",
		"a key of chart cluster": "global: {connectivity: {proxy: {htpProxy: 'http://u:SECRET@a:1'}}}",
		"enabled":                "global: {connectivity: {proxy: {enabled: SECRET}}}",
		"a key twice":            "proxy:\n  http: http://u:SECRET@a:1\n  http: http://u:SECRET@b:1\n",
		"two documents":          "proxy: " + section + "\n---\nproxy: {}\n",
	} {
		c, err := proxyconfig.ReadValues([]byte(text))
		if !c.IsZero() || err == nil || !strings.Contains(err.Error(), "documents[0]") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got %v and error %v, want one about documents[0]", name, c, err)
		}
	}
	for _, text := range []string{"# a comment\n---\nproxy: " + section + "\n", "other: {proxy: {htp: x}}\nproxy: " + section, ""} {
		if _, err := proxyconfig.ReadValues([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What Build wrote before there was a Layout is read.
func TestReadsWhatItWrote(t *testing.T) {
	before := strings.ReplaceAll(`cluster:
  proxy:
    http: URL
    https: URL
    noProxy: LIST
env:
- name: NO_PROXY
  value: LIST
- name: HTTP_PROXY
  value: URL
- name: HTTPS_PROXY
  value: URL
http_proxy: URL
https_proxy: URL
no_proxy: LIST
`, "LIST", golden)
	before = strings.ReplaceAll(before, "URL", rfcProxy)
	if got := must(proxyconfig.ReadValues([]byte(rfcConfigMap), []byte(before)))(t); got != config(rfcProxy) {
		t.Errorf("got %v, want %v", got, config(rfcProxy))
	}
}

// The RFC's own documents are read, byte for byte: the older keys too.
func TestReadsTheRFCsDocuments(t *testing.T) {
	for _, c := range []struct {
		name      string
		documents []string
		want      proxyconfig.Config
	}{
		{"the installation's", []string{rfcInstallation}, rfcLayers().Installation},
		{"ConfigMap", []string{rfcConfigMap}, proxyconfig.Config{NoProxy: golden}},
		{"Secret", []string{rfcSecret}, proxyconfig.Config{HTTPProxy: rfcProxy, HTTPSProxy: rfcProxy}},
		{"both", []string{rfcConfigMap, rfcSecret}, config(rfcProxy)},
	} {
		var documents [][]byte
		for _, d := range c.documents {
			documents = append(documents, []byte(d))
		}
		if got := must(proxyconfig.ReadValues(documents...))(t); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestReadValuesErrors(t *testing.T) {
	for _, c := range []struct{ name, text, field string }{
		{"no YAML", "a: [SECRET", "documents[0]"},
		{"another type", "http_proxy: {SECRET: 1}", "documents[0]"},
		{"two that differ", "http_proxy: http://SECRET@a:1\nproxy: {http: 'http://SECRET@b:1'}", "http_proxy"},
		{"variables that differ", "env: [{name: HTTP_PROXY, value: 'http://SECRET@a:1'}, {name: http_proxy, value: 'http://b:1'}]", "env http_proxy"},
		{"not valid", "proxy: {https: 'http://user:SECRET@x@a:1'}", "proxy.https"},
		{"no list", "no_proxy: SECRET@x", "no_proxy"},
	} {
		got, err := proxyconfig.ReadValues([]byte(c.text))
		var field *proxyconfig.FieldError
		if !got.IsZero() || !errors.As(err, &field) || field.Field != c.field || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got error %v, want one for %s", c.name, err, c.field)
		}
	}
}

// A section that is off makes an override direct, and takes nothing from other places.
func TestReadOverride(t *testing.T) {
	const off = "global: {connectivity: {proxy: {enabled: false, httpProxy: 'http://x:1', noProxy: x}}}"
	for text, want := range map[string]proxyconfig.Override{
		off:                              {Direct: true},
		off + "\nhttp_proxy: http://a:1": {Direct: true, Config: proxyconfig.Config{HTTPProxy: "http://a:1"}},
		"proxy: {enabled: true}":         {},
		"":                               {},
	} {
		if got := must(proxyconfig.ReadOverride([]byte(text)))(t); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	if _, err := proxyconfig.ReadOverride([]byte(off), []byte("proxy: {enabled: true}")); err == nil || !strings.Contains(err.Error(), "enabled: differs from") {
		t.Errorf("got %v of two that differ", err)
	}
}
