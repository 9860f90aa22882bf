package kubeconfig_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
	kubeyaml "sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/kubeconfig"
)

// FuzzMerge strews unknown keys over a kubeconfig and merges into it: nothing
// of others is lost, what was asked for is there as client-go reads it, and to
// merge again changes nothing.
func FuzzMerge(f *testing.F) {
	for i := range uint64(64) {
		f.Add(i, "vendor-key", "1_0.0e1", "to:ken #x", i%2 == 0)
	}
	f.Add(uint64(3), "yes", "{a: [b, ~, 0o7]}", "yes", true)
	f.Add(uint64(7), "<<x", "'a''b'", "1:20", false)
	f.Add(uint64(9), "a\u2028b", "|\n  x\n  y", "\"", true)
	f.Fuzz(func(t *testing.T, seed uint64, key, value, word string, asJSON bool) {
		rng := rand.New(rand.NewPCG(seed, 0))
		existing := strewn(t, rng, key, value, asJSON)
		spec := randomSpec(rng, word)
		got, err := kubeconfig.Merge(existing, spec)
		if err != nil {
			if secret := "s3cr3t"; strings.Contains(err.Error(), secret) {
				t.Errorf("the error holds a secret: %v", err)
			}
			return // the key or the value is none, or the Spec
		}
		merged(t, existing, spec)
		if !writtenOut(t, existing) {
			if existing, err = kubeyaml.YAMLToJSON(existing); err != nil {
				t.Fatal(err)
			}
		}
		was, is := plain(t, existing), plain(t, got)
		if diff := cmp.Diff(withoutOurs(was), withoutOurs(is)); diff != "" {
			t.Errorf("what is others' (-was +is):\n%s\n%s\n%s", diff, existing, got)
		}
		checkSaid(t, got, spec)
	})
}

// writtenOut reports whether text has no key twice, no alias, anchor or merge key: only then the
// notation of numbers is kept.
func writtenOut(t *testing.T, text []byte) bool {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(*yaml.Node) bool
	walk = func(n *yaml.Node) bool {
		return n.Alias == nil && n.Anchor == "" && n.Tag != "!!merge" && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !walk(c) })
	}
	_, err := kubeyaml.YAMLToJSONStrict(text)
	return err == nil && walk(&root)
}

// strewn is a kubeconfig with key: value in random places.
func strewn(t *testing.T, rng *rand.Rand, key, value string, asJSON bool) []byte {
	var root yaml.Node
	if err := yaml.Unmarshal(foreignWith("proxy-url: http://u:s3cr3t@p", "token: s3cr3t"), &root); err != nil {
		t.Fatal(err)
	}
	var mappings []*yaml.Node
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			mappings = append(mappings, n)
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(&root)
	for range rng.IntN(4) {
		var k, v yaml.Node
		if k.Encode("vendor-"+key) != nil || yaml.Unmarshal([]byte(value), &v) != nil || len(v.Content) != 1 {
			continue
		}
		m := mappings[rng.IntN(len(mappings))]
		at := 2 * rng.IntN(len(m.Content)/2+1)
		m.Content = append(m.Content[:at:at], append([]*yaml.Node{&k, v.Content[0]}, m.Content[at:]...)...)
	}
	text, err := yaml.Marshal(&root)
	if err != nil {
		t.Skip("no YAML") // of values that the YAML library reads and can't write
	}
	if asJSON {
		var any map[string]any
		if yaml.Unmarshal(text, &any) == nil {
			if data, err := json.MarshalIndent(any, "", "\t"); err == nil {
				return data
			}
		}
	}
	return text
}

func randomSpec(rng *rand.Rand, word string) kubeconfig.Spec {
	var s kubeconfig.Spec
	if rng.IntN(2) == 0 {
		s.Credentials.Token = word
	}
	if rng.IntN(2) == 0 {
		s.TLSServerName = word
	}
	if rng.IntN(2) == 0 {
		s.Endpoint = kubeconfig.Endpoint{Host: "b.test", Port: int32(rng.IntN(3))}
	}
	switch rng.IntN(4) {
	case 0:
		s.Route = kubeconfig.Route{ProxyURL: "https://p.test", Header: map[string][]string{"X-Word": {word}}, NoProxy: word}
	case 1:
		s.Route.Direct = true
	case 2:
		s.Route.Tunnel = &kubeconfig.Tunnel{Gateway: "http://gw", User: "u", Password: word}
	}
	if rng.IntN(2) == 0 {
		s.MoreEndpoints = []kubeconfig.Endpoint{{Host: word, Port: 6443}}
	}
	return s
}

// withoutOurs drops what a Merge of randomSpec may change.
func withoutOurs(root any) any {
	entry := func(list, name, key string) map[string]any {
		items, _ := root.(map[string]any)[list].(map[string]any)
		item, _ := items[name].(map[string]any)
		m, _ := item[key].(map[string]any)
		return m
	}
	cluster := entry("clusters", "!!str it", "cluster")
	for _, key := range []string{"server", "proxy-url", "tls-server-name"} {
		delete(cluster, key)
	}
	if extensions, ok := cluster["extensions"].(map[string]any); ok {
		delete(extensions, "!!str "+kubeconfig.ExtensionName)
	}
	delete(entry("users", "!!str me", "user"), "token")
	return root
}

// checkSaid reads data as client-go does.
func checkSaid(t *testing.T, data []byte, s kubeconfig.Spec) {
	t.Helper()
	config, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	cluster, user := config.Clusters["it"], config.AuthInfos["me"]
	if want := strings.TrimSpace(s.Credentials.Token); want != "" && user.Token != want {
		t.Errorf("token: got %q, want %q", user.Token, want)
	}
	if want := s.TLSServerName; want != "" && cluster.TLSServerName != want {
		t.Errorf("tls-server-name: got %q, want %q", cluster.TLSServerName, want)
	}
	if want := fmt.Sprintf("https://b.test:%d", s.Endpoint.Port); s.Endpoint.Port != 0 && cluster.Server != want {
		t.Errorf("server: got %q, want %q", cluster.Server, want)
	}
	if s.Route.Direct && cluster.ProxyURL != "" || s.Route.ProxyURL != "" && cluster.ProxyURL != s.Route.ProxyURL {
		t.Errorf("proxy-url: got %q, want %q", cluster.ProxyURL, s.Route.ProxyURL)
	}
	if len(s.Route.Header) > 0 {
		wire, _ := json.Marshal(s.Route.Header["X-Word"])
		header, _ := extensionOf(t, cluster)["header"].(map[string]any)
		got, _ := json.Marshal(header["X-Word"])
		if !bytes.Equal(got, wire) {
			t.Errorf("header: got %s, want %s", got, wire)
		}
	}
}
