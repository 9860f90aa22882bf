package kubeconfig_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	yamljson "sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// foreign has things of others wherever they can be. %s are more fields of the
// cluster and of the user.
const foreign = `# of a person
apiVersion: v1
vendor: {a: 0x10, b: [yes, 1_000], "c d": ~}
clusters:
- cluster:
    server: https://other.test
  name: other
- cluster:
    disable-compression: true
    extensions:
    - extension: {big: 123456789012345678901234567890, float: 1.10}
      name: vendor.test/x
    server: https://api.test:6443/sub%s
    vendor-key: 1e400
  label: blue
  name: it
contexts:
- context: {cluster: other, user: other, namespace: a}
  name: other
- name: one
  context:
    cluster: it
    namespace: default
    user: me
    vendor: [1, 2.50]
current-context: one
kind: Config
preferences:
  colors: true
users:
- name: me
  more: 007
  user:%s
    vendor-key: 2026-01-02
- name: other
  user:
    token: "123"
`

func foreignWith(cluster, user string) []byte {
	return fmt.Appendf(nil, foreign, indented(cluster), indented(user))
}

func indented(fields string) string {
	if fields == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(fields, "\n", "\n    ")
}

// merged checks what holds for every Merge.
func merged(t testing.TB, existing []byte, spec kubeconfig.Spec) []byte {
	t.Helper()
	before := bytes.Clone(existing)
	got, err := kubeconfig.Merge(existing, spec)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, existing) {
		t.Error("Merge wrote into what it was given")
	}
	again, err := kubeconfig.Merge(got, spec)
	if err != nil {
		t.Fatalf("merged again: %v\n%s", err, got)
	}
	if len(got) == 0 || &again[0] != &got[0] {
		t.Errorf("merged again, it changes:\n%s", cmp.Diff(string(got), string(again)))
	}
	if _, err := clientcmd.Load(got); err != nil {
		t.Errorf("clientcmd: %v\n%s", err, got)
	}
	return got
}

func TestMerge(t *testing.T) {
	ca, other := pki.NewCAWith(nil, nil), pki.NewCAWith(nil, nil)
	data := func(c ...*pki.CA) string {
		var all []byte
		for _, a := range c {
			all = append(all, a.CertPEM()...)
		}
		return "certificate-authority-data: " + base64.StdEncoding.EncodeToString(all)
	}
	const ours = "extensions:\n- name: causewayproject.github.io/route\n  extension: {kind: Route, apiVersion: kubeconfig.causewayproject.github.io/v1, "
	type fields struct{ cluster, user string }
	spec := func(change func(*kubeconfig.Spec)) kubeconfig.Spec {
		s := kubeconfig.Spec{}
		change(&s)
		return s
	}
	proxy := func(u string) kubeconfig.Spec {
		return kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: u}}
	}
	endpoint := func(host string, port int32) kubeconfig.Spec {
		return kubeconfig.Spec{Endpoint: kubeconfig.Endpoint{Host: host, Port: port}}
	}
	token := kubeconfig.Spec{Credentials: kubeconfig.Credentials{Token: "new"}}
	for _, test := range []struct {
		name      string
		have      fields
		spec      kubeconfig.Spec
		want      fields // the same: existing itself
		subServer string // "" leaves it
	}{
		{"nothing", fields{"proxy-url: http://p", "token: t"}, kubeconfig.Spec{Name: "else"}, fields{"proxy-url: http://p", "token: t"}, ""},
		{"a proxy", fields{"", "token: t"}, proxy("http://u:p@proxy:3128"), fields{"proxy-url: http://u:p@proxy:3128", "token: t"}, ""},
		{"the same proxy", fields{"proxy-url: 'HTTP://u:p@proxy:3128'", "token: t"}, proxy("http://u:p@proxy:3128"), fields{"proxy-url: 'HTTP://u:p@proxy:3128'", "token: t"}, ""},
		{"a proxy that client-go refuses", fields{"proxy-url: socks5h://proxy", "token: t"}, proxy("socks5h://proxy"), fields{"proxy-url: socks5://proxy", "token: t"}, ""},
		{"another password", fields{"proxy-url: http://u:p@proxy", "token: t"}, proxy("http://u:q@proxy"), fields{"proxy-url: http://u:q@proxy", "token: t"}, ""},
		{"direct", fields{"proxy-url: http://p", "token: t"}, kubeconfig.Spec{Route: kubeconfig.Route{Direct: true}}, fields{"", "token: t"}, ""},
		{"a name", fields{"", "token: t"}, spec(func(s *kubeconfig.Spec) { s.TLSServerName = "yes" }), fields{"tls-server-name: \"yes\"", "token: t"}, ""},
		{"the same endpoint", fields{"", "token: t"}, endpoint("api.test", 6443), fields{"", "token: t"}, ""},
		{"in other letters", fields{"", "token: t"}, endpoint("API.test", 6443), fields{"", "token: t"}, ""},
		{"another endpoint", fields{"", "token: t"}, endpoint("2001:DB8::1", 6443), fields{"", "token: t"}, "https://[2001:DB8::1]:6443"},
		{"another port", fields{"", "token: t"}, endpoint("api.test", 443), fields{"", "token: t"}, "https://api.test:443"},
		{"the CA for a file", fields{"certificate-authority: /ca", "token: t"}, kubeconfig.Spec{CA: ca.CertPEM()}, fields{data(ca), "token: t"}, ""},
		{"the CA for none", fields{"insecure-skip-tls-verify: true", "token: t"}, kubeconfig.Spec{CA: ca.CertPEM()}, fields{data(ca), "token: t"}, ""},
		{"the CA beside a file", fields{"certificate-authority: /ca\n" + data(ca), "token: t"}, kubeconfig.Spec{CA: ca.CertPEM()}, fields{data(ca), "token: t"}, ""},
		{"the CA verified by nobody", fields{data(ca) + "\ninsecure-skip-tls-verify: true", "token: t"}, kubeconfig.Spec{CA: ca.CertPEM()}, fields{data(ca), "token: t"}, ""},
		{"a CA more", fields{data(ca), "token: t"}, kubeconfig.Spec{CA: pki.CertPEM(ca.Cert, other.Cert)}, fields{data(ca, other), "token: t"}, ""},
		{"a CA less", fields{data(ca, other), "token: t"}, kubeconfig.Spec{CA: ca.CertPEM()}, fields{data(ca), "token: t"}, ""},
		{"the CAs in another order", fields{data(ca, other), "token: t"}, kubeconfig.Spec{CA: pki.CertPEM(other.Cert, ca.Cert)}, fields{data(ca, other), "token: t"}, ""},
		{"a token for a file", fields{"", "tokenFile: /t"}, token, fields{"", "token: new"}, ""},
		{"a token for a password", fields{"", "as: jane\npassword: p\nusername: u"}, token, fields{"", "as: jane\ntoken: new"}, ""},
		{"a token for a plugin", fields{"", "as-groups: [g]\nexec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}"}, token, fields{"", "as-groups: [g]\ntoken: new"}, ""},
		{"a token for a provider", fields{"", "as: jane\nas-uid: u\nas-user-extra: {a: [b]}\nauth-provider: {name: x}"}, token, fields{"", "as: jane\nas-uid: u\nas-user-extra: {a: [b]}\ntoken: new"}, ""},
		{"a token for certificates", fields{"", "client-certificate: /c\nclient-certificate-data: eA==\nclient-key: /k\nclient-key-data: eA==\ntoken: new"}, token, fields{"", "token: new"}, ""},
		{"a token for nothing", fields{"", ""}, token, fields{"", "token: new"}, ""},
		{"the same token", fields{"", "token: new"}, token, fields{"", "token: new"}, ""},
		{"a user given whole", fields{"", "as: jane\nextensions:\n- name: x\n  extension: {a: 1.10}\ntoken: t"}, spec(func(s *kubeconfig.Spec) {
			s.Credentials.AuthInfo = &clientcmdapi.AuthInfo{Username: "u", Password: "p"}
		}), fields{"", "extensions:\n- name: x\n  extension: {a: 1.10}\npassword: p\nusername: u"}, ""},
		{"more endpoints", fields{"", "token: t"}, spec(func(s *kubeconfig.Spec) {
			s.MoreEndpoints = []kubeconfig.Endpoint{{Host: "api.test", Port: 6443}, {Host: "b.test", Port: 1}}
		}), fields{ours + "endpoints: ['b.test:1']}", "token: t"}, ""},
		{"other endpoints, the same proxy", fields{ours + "endpoints: ['b.test:1'], noProxy: a.test}", "token: t"}, spec(func(s *kubeconfig.Spec) {
			s.MoreEndpoints = []kubeconfig.Endpoint{{Host: "c.test", Port: 1}}
		}), fields{ours + "endpoints: ['c.test:1'], noProxy: a.test}", "token: t"}, ""},
		{"no endpoints any more", fields{ours + "endpoints: ['b.test:1']}", "token: t"}, spec(func(s *kubeconfig.Spec) { s.MoreEndpoints = []kubeconfig.Endpoint{} }), fields{"", "token: t"}, ""},
		{"the next endpoint", fields{ours + "endpoints: ['b.test:1', 'c.test:1']}", "token: t"}, endpoint("b.test", 1), fields{ours + "endpoints: ['c.test:1']}", "token: t"}, "https://b.test:1"},
		{"another proxy, which knows no header", fields{ours + "header: {X-Tenant: [blue]}, endpoints: ['b.test:1'], noProxy: a.test, gateway: {}}\nproxy-url: https://p", "token: t"},
			proxy("https://q"), fields{ours + "endpoints: ['b.test:1']}\nproxy-url: https://q", "token: t"}, ""},
		{"direct, which knows no proxy", fields{ours + "proxyTLS: {serverName: x}, endpoints: ['b.test:1']}\nproxy-url: https://p", "token: t"},
			kubeconfig.Spec{Route: kubeconfig.Route{Direct: true}}, fields{ours + "endpoints: ['b.test:1']}", "token: t"}, ""},
		{"direct, nothing left", fields{ours + "noProxy: a.test}\nproxy-url: https://p", "token: t"},
			kubeconfig.Spec{Route: kubeconfig.Route{Direct: true}}, fields{"", "token: t"}, ""},
		{"the same extension", fields{ours + "noProxy: a.test}\nproxy-url: https://p", "token: t"},
			kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: "https://p", NoProxy: "a.test"}}, fields{ours + "noProxy: a.test}\nproxy-url: https://p", "token: t"}, ""},
		{"a newer extension that is not asked about", fields{"extensions:\n- name: causewayproject.github.io/route\n  extension: {apiVersion: v9}", "token: t"}, token,
			fields{"extensions:\n- name: causewayproject.github.io/route\n  extension: {apiVersion: v9}", "token: new"}, ""},
		{"a tunnel", fields{ours + "endpoints: ['b.test:1']}\ntls-server-name: api.test", "token: t"}, spec(func(s *kubeconfig.Spec) {
			s.Route.Tunnel = &kubeconfig.Tunnel{Gateway: "http://gw", Password: "p", Cluster: "default/prod"}
		}), fields{ours + "gateway: {cluster: default/prod}}\nproxy-url: http://default%2Fprod:p@gw\ntls-server-name: kubernetes.default.svc", "token: t"}, "https://kubernetes.default.svc:443"},
		{"a tunnel over TLS", fields{"tls-server-name: api.test", "token: t"}, spec(func(s *kubeconfig.Spec) {
			s.Route.Tunnel = &kubeconfig.Tunnel{Gateway: "https://gw", User: "u", Password: "p"}
		}), fields{ours + "gateway: {}}\nproxy-url: https://u:p@gw", "token: t"}, "https://kubernetes.default.svc:443"},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Whoever has an extension beside that of the vendor.
			shared := func(f fields) []byte {
				text := string(foreignWith("", f.user))
				const vendor = "    - extension: {big:"
				extra := f.cluster
				if rest, ok := strings.CutPrefix(extra, "extensions:\n"); ok {
					entry, others, _ := strings.Cut(rest, "}\n")
					if others != "" || strings.HasSuffix(rest, "}\n") {
						entry += "}"
					}
					extra = others
					text = strings.Replace(text, vendor, "    "+strings.ReplaceAll(entry, "\n", "\n    ")+"\n"+vendor, 1)
				}
				return []byte(strings.Replace(text, "6443/sub", "6443/sub"+indented(extra), 1))
			}
			existing, want := shared(test.have), shared(test.want)
			if test.subServer != "" {
				want = bytes.Replace(want, []byte("https://api.test:6443/sub"), []byte(test.subServer), 1)
			}
			got := merged(t, existing, test.spec)
			if bytes.Equal(existing, want) != (&got[0] == &existing[0]) {
				t.Errorf("existing itself: got %t, want %t", &got[0] == &existing[0], bytes.Equal(existing, want))
			}
			if diff := cmp.Diff(plain(t, want), plain(t, got)); diff != "" {
				t.Errorf("Merge (-want +got):\n%s\n%s", diff, got)
			}
			for _, kept := range []string{"123456789012345678901234567890", "1.10", "1e400", "0x10", "[yes, 1_000]", "007", "2026-01-02", "# of a person", "[1, 2.50]"} {
				if !bytes.Contains(got, []byte(kept)) {
					t.Errorf("%s is gone:\n%s", kept, got)
				}
			}
		})
	}
}

// JSON is read too, and written as YAML, in the form that client-go gives it.
func TestMergeJSON(t *testing.T) {
	spec := kubetest.Spec(pki.NewCAWith(nil, nil))
	yamlText := built(t, spec)
	object, err := yamljson.YAMLToJSON(yamlText)
	if err != nil {
		t.Fatal(err)
	}
	route := kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: "http://p"}}
	want := merged(t, yamlText, route)
	for _, indent := range []string{"", "  ", "\t"} {
		text := object
		if indent != "" {
			var b bytes.Buffer
			if err := json.Indent(&b, object, "", indent); err != nil {
				t.Fatal(err)
			}
			text = b.Bytes()
		}
		if got := merged(t, text, kubeconfig.Spec{}); &got[0] != &text[0] {
			t.Errorf("indented by %q: changes without a reason", indent)
		}
		got := merged(t, text, route)
		if diff := cmp.Diff(plain(t, want), plain(t, got)); diff != "" || bytes.HasPrefix(got, []byte("{")) {
			t.Errorf("indented by %q (-want +got):\n%s\n%s", indent, diff, got)
		}
	}
	// What client-go wrote stays in its form.
	config, err := clientcmd.Load(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(write(t, config)), string(want)); diff != "" {
		t.Errorf("clientcmd (-want +got):\n%s", diff)
	}
}

// plain is what a YAML text means, with the text of what is no mapping or
// list, so that the digits of numbers count.
func plain(t testing.TB, text []byte) any {
	t.Helper()
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return plainNode(n.Content[0])
}

func plainNode(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plainNode(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		var list []any
		for _, item := range n.Content {
			list = append(list, plainNode(item))
		}
		if len(list) == 0 || mappingName(list[0]) == "" {
			return list
		}
		byName := map[string]any{} // the order of named entries says nothing
		for _, item := range list {
			byName[mappingName(item)] = item
		}
		return byName
	}
	return n.Tag + " " + n.Value
}

func mappingName(item any) string {
	m, _ := item.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

func TestMergeErrors(t *testing.T) {
	ca := pki.NewCAWith(nil, nil)
	good := string(foreignWith("", "token: "+kubetest.Canary))
	replaced := func(old, now string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(good, old, now, 1)
	}
	extension := func(fields string) string {
		return replaced("    - extension: {big:", "    - {name: causewayproject.github.io/route, extension: "+fields+"}\n    - extension: {big:")
	}
	const ours = `clusters["it"].extensions["causewayproject.github.io/route"]`
	const head = "apiVersion: kubeconfig.causewayproject.github.io/v1, kind: Route"
	route := kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: "http://p"}}
	caKey := kubeconfig.Spec{Credentials: kubeconfig.Credentials{CAKey: ca.KeyPEM()}}
	for _, test := range []struct {
		name, existing string
		spec           kubeconfig.Spec
		field, text    string
	}{
		{"nothing", "", route, "existing", "empty"},
		{"a comment", "# " + kubetest.Canary, route, "existing", "empty"},
		{"no YAML", "a: b: " + kubetest.Canary, route, "existing", "not YAML"},
		{"an unknown anchor", "a: *" + kubetest.Canary, route, "existing", "not YAML"},
		{"binary", "\x00\xff" + kubetest.Canary, route, "existing", "not YAML"},
		{"many items", good + "x:\n" + entries(1001, "- %d"), route, "existing", "1001 items"},
		{"a word", kubetest.Canary, route, "existing", "mapping"},
		{"a list", "- " + kubetest.Canary, route, "existing", "mapping"},
		{"null", "null", route, "existing", "mapping"},
		{"two documents", good + "---\n" + good, route, "existing", "several"},
		{"a bad second document", good + "---\na: b: " + kubetest.Canary, route, "existing", "several"},
		{"a key that is a list", replaced("kind: Config", "kind: Config\nx: {[a]: "+kubetest.Canary+"}"), route, "existing", "does not read"},
		{"a field of another type", replaced("clusters:", "clusters: "+kubetest.Canary+"\nx:"), route, "existing", "another type"},
		{"a broken certificate", replaced("disable-compression: true", "certificate-authority-data: '"+kubetest.Canary+"!'"), route, "existing", "another type"},
		{"two entries of a name", replaced("name: other\n- cluster", "name: it\n- cluster"), route, "existing", "has two clusters of the name"},
		{"not a kubeconfig", "apiVersion: v1\nkind: Secret\ndata: {value: " + kubetest.Canary + "}", route, "existing", "not a kubeconfig"},
		{"no context", replaced("current-context: one", ""), route, "current-context", "required"},
		{"another context", replaced("current-context: one", "current-context: two"), route, "current-context", `"two"`},
		{"no cluster", replaced("cluster: it", "cluster: at"), route, `contexts["one"].cluster`, `"at"`},
		{"no such user", replaced("user: me", "user: you"), route, `contexts["one"].user`, `"you"`},
		{"no server", replaced("server: https://api.test:6443/sub", "x: y"), route, `clusters["it"].server`, "required"},
		{"no user", replaced("user: me", ""), kubeconfig.Spec{Credentials: kubeconfig.Credentials{Token: "t"}}, `contexts["one"].user`, "no user entry"},
		{"a name in base64", replaced("name: it", "name: !!binary aXQ="), route, `clusters["it"]`, "not written as a string"},
		{"another cluster's user", strings.Replace(good, "user: other", "user: me", 1), kubeconfig.Spec{Credentials: kubeconfig.Credentials{Token: "t"}}, `users["me"]`, `context "other"`},
		{"no CA to sign", good, caKey, "CA", "holds none"},
		{"another CA", replaced("disable-compression: true", "certificate-authority-data: "+base64.StdEncoding.EncodeToString(pki.NewCAWith(nil, nil).CertPEM())), caKey, "Credentials.CAKey", "not the key of"},
		{"no CA at all", replaced("disable-compression: true", "certificate-authority-data: eA=="), caKey, `clusters["it"].certificate-authority-data`, "no PEM"},
		{"the cluster's token for the gateway", good, kubeconfig.Spec{Route: kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{Gateway: "http://gw", User: "u", Password: kubetest.Canary}}}, "Route.Tunnel.Password", "cluster's token"},
		{"an extension of tomorrow", extension("{apiVersion: kubeconfig.causewayproject.github.io/v2, kind: Route}"), route, ours, "newer"},
		{"an extension of another kind", extension("{apiVersion: kubeconfig.causewayproject.github.io/v1, kind: Road}"), route, ours, "kind Route"},
		{"an extension without version", extension("{noProxy: " + kubetest.Canary + "}"), route, ours, "want apiVersion"},
		{"an extension that is none", extension(kubetest.Canary), route, ours, "no JSON object"},
		{"an unknown field", extension("{" + head + ", strange: " + kubetest.Canary + "}"), route, ours, `"strange"`},
		{"a field in other letters", extension("{" + head + ", noproxy: " + kubetest.Canary + "}"), route, ours, `"noproxy"`},
		{"an unknown field of proxyTLS", extension("{" + head + ", proxyTLS: {insecure: true}}"), route, ours + ".proxyTLS", `"insecure"`},
		{"an unknown field of secret", extension("{" + head + ", proxyTLS: {secret: {key: x}}}"), route, ours + ".proxyTLS.secret", `"key"`},
		{"an unknown field of gateway", extension("{" + head + ", gateway: {x: y}}"), route, ours + ".gateway", `"x"`},
		{"a secret without name", extension("{" + head + ", proxyTLS: {secret: {namespace: x}}}"), route, ours + ".proxyTLS.secret.name", "required"},
		{"a certificate without key", extension("{" + head + ", proxyTLS: {clientCertificate: x}}"), route, ours + ".proxyTLS.clientKey", "required"},
		{"proxyTLS is a word", extension("{" + head + ", proxyTLS: " + kubetest.Canary + "}"), route, ours + ".proxyTLS", "object"},
		{"no base64", extension("{" + head + ", proxyTLS: {certificateAuthorityData: '" + kubetest.Canary + "!'}}"), route, ours + ".proxyTLS.certificateAuthorityData", "base64"},
		{"noProxy is a number", extension("{" + head + ", noProxy: 12}"), route, ours + ".noProxy", "string"},
		{"noProxy covers nothing", extension("{" + head + ", noProxy: 'http://u:" + kubetest.Canary + "@x'}"), route, ours + ".noProxy", "covers no host"},
		{"header is a list", extension("{" + head + ", header: [" + kubetest.Canary + "]}"), route, ours + ".header", "by name"},
		{"header frames", extension("{" + head + ", header: {Host: [" + kubetest.Canary + "]}}"), route, ours + ".header", "Host"},
		{"endpoints is a word", extension("{" + head + ", endpoints: " + kubetest.Canary + "}"), route, ours + ".endpoints", "list"},
		{"an endpoint without port", extension("{" + head + ", endpoints: [a.test]}"), route, ours + ".endpoints[0]", "host:port"},
		{"an endpoint with port 0", extension("{" + head + ", endpoints: ['a.test:1', 'a.test:0']}"), route, ours + ".endpoints[1]", "65535"},
		{"an endpoint without host", extension("{" + head + ", endpoints: [':1']}"), route, ours + ".endpoints[0]", "required"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := kubeconfig.Merge([]byte(test.existing), test.spec)
			if got != nil {
				t.Errorf("got a kubeconfig along with the error:\n%s", got)
			}
			if fe := new(kubeconfig.FieldError); !errors.As(err, &fe) || fe.Field != test.field || !strings.Contains(err.Error(), test.text) {
				t.Fatalf("got %v, want an error of %s with %q", err, test.field, test.text)
			}
			for _, e := range kubetest.ErrorTree(err) {
				kubetest.CheckLeaks(t, "Merge", e)
			}
		})
	}
}

// What a text says by aliases, merge keys or a key that is there twice is what client-go reads.
func TestMergeAsClientGoReads(t *testing.T) {
	good := string(foreignWith("proxy-url: http://other", "token: t"))
	for name, text := range map[string]string{
		"an alias":                 "x: &x https://alias.test\n" + strings.Replace(good, "https://api.test:6443/sub", "*x", 1),
		"a user by an alias":       "x: &x {token: alias}\n" + strings.Replace(good, "  user:\n    token: t", "  user: *x\n  more:", 1),
		"a merge key":              "x: &x {insecure-skip-tls-verify: true, server: https://merged.test}\n" + strings.Replace(good, "    disable-compression: true", "    <<: *x", 1),
		"merge keys behind others": "x: &x {tls-server-name: merged.test}\ny: &y {server: https://merged.test}\n" + strings.Replace(good, "  label: blue", "    <<: [*x, *y]\n  label: blue", 1),
		"a key twice":              strings.Replace(good, "    proxy-url:", "    server: https://second.test\n    proxy-url: http://second\n    proxy-url:", 1),
		"an end, and nothing":      good + "---\n",
	} {
		t.Run(name, func(t *testing.T) {
			want, err := clientcmd.Load([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if merged(t, []byte(text), kubeconfig.Spec{}); want.AuthInfos["me"].Token == "" {
				t.Fatal("the case is none")
			}
			got, err := clientcmd.Load(merged(t, []byte(text), kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: "http://p"}}))
			if err != nil {
				t.Fatal(err)
			}
			want.Clusters["it"].ProxyURL = "http://p"
			if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Extensions" }, cmp.Ignore())); diff != "" {
				t.Errorf("what client-go reads (-want +got):\n%s", diff)
			}
		})
	}
}

// A null is an absent field, and what is emptied is removed.
func TestMergeEmpty(t *testing.T) {
	const text = `clusters:
- name: it
  cluster:
    server: https://api.test:6443
    extensions: ~
contexts:
- name: it
  context: {cluster: it}
current-context: it
users: ~
`
	via := kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: "http://p", NoProxy: "a.test"}}
	got := merged(t, []byte(text), via)
	config, err := clientcmd.Load(got)
	if err != nil {
		t.Fatal(err)
	}
	if extension := extensionOf(t, config.Clusters["it"]); extension["noProxy"] != "a.test" {
		t.Errorf("got extension %v in\n%s", extension, got)
	}
	got = merged(t, got, kubeconfig.Spec{Route: kubeconfig.Route{Direct: true}})
	if bytes.Contains(got, []byte("extensions")) {
		t.Errorf("an empty list is left:\n%s", got)
	}
}
