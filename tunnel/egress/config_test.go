package egress_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/tunnel/egress"
)

var tlsFiles = egress.TLS{CABundle: "/etc/egress/ca.crt", ClientKey: "/etc/egress/tls.key", ClientCert: "/etc/egress/tls.crt"}

const file = `apiVersion: apiserver.k8s.io/v1beta1
egressSelections:
- connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: /run/causeway/tunnel/egress.sock
  name: cluster
- connection:
    proxyProtocol: Direct
  name: controlplane
- connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        tlsConfig:
          caBundle: /etc/egress/ca.crt
          clientCert: /etc/egress/tls.crt
          clientKey: /etc/egress/tls.key
        url: https://127.0.0.1:8131
  name: etcd
kind: EgressSelectorConfiguration
`

func TestMarshal(t *testing.T) {
	c := egress.Configuration{Selections: []egress.Selection{
		{Name: egress.Cluster, Connection: egress.ThroughSocket("/run/causeway/tunnel/egress.sock")},
		{Name: egress.ControlPlane, Connection: egress.Direct()},
		{Name: egress.Etcd, Connection: egress.ThroughTLS("https://127.0.0.1:8131", tlsFiles)},
	}}
	got, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(file, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	back, err := egress.Parse(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&c, back); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	got, err = new(egress.Configuration).Marshal()
	if want := "apiVersion: apiserver.k8s.io/v1beta1\negressSelections: []\nkind: EgressSelectorConfiguration\n"; string(got) != want || err != nil {
		t.Errorf("zero value: got %q, %v; want %q", got, err, want)
	}
	c.Selections[2].Connection = egress.ThroughTLS("https://u:s3cr3t@127.0.0.1:8131", tlsFiles)
	if got, err := c.Marshal(); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("user info: got %q, %v, want an error without it", got, err)
	}
	if got, err := (&egress.Configuration{Selections: make([]egress.Selection, 1)}).Marshal(); err == nil {
		t.Errorf("invalid: got %q, want an error", got)
	}
}

// head is what all files begin with.
const head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n"

func TestParse(t *testing.T) {
	grpc := egress.Connection{ProxyProtocol: egress.ProtocolGRPC, Transport: &egress.Transport{UDS: &egress.UDS{Name: "/run/k.sock"}}}
	for _, tt := range []struct {
		name, text string
		want       []egress.Selection
	}{
		{"none", head, nil},
		{"null", head + "egressSelections:\n", nil},
		{"alpha", "apiVersion: apiserver.k8s.io/v1alpha1\nkind: EgressSelectorConfiguration\negressSelections: [{name: etcd, connection: {proxyProtocol: Direct}}]",
			[]egress.Selection{{Name: egress.Etcd, Connection: egress.Direct()}}},
		{"JSON", `{"apiVersion":"apiserver.k8s.io/v1beta1","kind":"EgressSelectorConfiguration","egressSelections":[{"name":"Cluster","connection":{"proxyProtocol":"GRPC","transport":{"tcp":null,"uds":{"udsName":"/run/k.sock"}}}}]}`,
			[]egress.Selection{{Name: "Cluster", Connection: grpc}}},
		{"old name", head + "egressSelections: [{name: master, connection: {proxyProtocol: Direct}}]",
			[]egress.Selection{{Name: egress.ControlPlane, Connection: egress.Direct()}}},
		{"old name, alpha", "apiVersion: apiserver.k8s.io/v1alpha1\nkind: EgressSelectorConfiguration\negressSelections: [{name: master, connection: {proxyProtocol: Direct}}]",
			[]egress.Selection{{Name: egress.ControlPlane, Connection: egress.Direct()}}},
		{"user info", head + "egressSelections: [{name: etcd, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://u:s3cr3t@127.0.0.1:8131', tlsConfig: {clientCert: /a, clientKey: /b}}}}}]",
			[]egress.Selection{{Name: egress.Etcd, Connection: egress.ThroughTLS("https://127.0.0.1:8131", egress.TLS{ClientCert: "/a", ClientKey: "/b"})}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := egress.Parse([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Selections); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// fieldsOf lists the fields that err names.
func fieldsOf(err error) (list []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			var field *egress.FieldError
			if errors.As(err, &field) {
				list = append(list, field.Field)
			}
		}
	}
	return list
}

func TestParseErrors(t *testing.T) {
	const one = "egressSelections[0]"
	selection := func(connection string) string {
		return head + "egressSelections: [{name: cluster, connection: " + connection + "}]"
	}
	httpConnect := func(transport string) string {
		return selection("{proxyProtocol: HTTPConnect, transport: " + transport + "}")
	}
	tcp := func(url string) string {
		return httpConnect("{tcp: {url: '" + url + "', tlsConfig: {clientCert: a, clientKey: b}}}")
	}
	uds := func(name string) string { return httpConnect("{uds: {udsName: '" + name + "'}}") }
	const url, socket = one + ".connection.transport.tcp.url", one + ".connection.transport.uds.udsName"
	for _, tt := range []struct {
		name, text string
		want       []string // nil: the YAML is wrong
	}{
		{"not YAML", "a: [", nil},
		{"twice", head + "kind: x", nil},
		{"empty", "", []string{"(file)"}},
		{"a list", "[]", []string{"(file)"}},
		{"no type", "egressSelections: []", []string{"apiVersion", "kind"}},
		{"another type", "apiVersion: v1\nkind: Pod", []string{"apiVersion", "kind"}},
		{"unknown fields", head + "egressselections: []\nmore: 1", []string{"egressselections", "more"}},
		{"unknown deep", httpConnect("{uds: {udsname: /x}}"), []string{one + ".connection.transport.uds.udsname"}},
		{"a number", head + "egressSelections: [{name: 1, connection: {proxyProtocol: Direct}}]", []string{one + ".name"}},
		{"no list", head + "egressSelections: {}", []string{"egressSelections"}},
		{"no object", selection("x"), []string{one + ".connection"}},
		{"no name", head + "egressSelections: [{connection: {proxyProtocol: Direct}}]", []string{one + ".name"}},
		{"old name in another case", head + "egressSelections: [{name: Master, connection: {proxyProtocol: Direct}}]", []string{one + ".name"}},
		{"old name and new", head + "egressSelections: [{name: master, connection: {proxyProtocol: Direct}}, {name: ControlPlane, connection: {proxyProtocol: Direct}}]", []string{"egressSelections[1].name"}},
		{"old name twice", head + "egressSelections: [{name: master, connection: {proxyProtocol: Direct}}, {name: master, connection: {proxyProtocol: Direct}}]", []string{"egressSelections[1].name"}},
		{"name twice", head + "egressSelections: [{name: etcd, connection: {proxyProtocol: Direct}}, {name: Etcd, connection: {proxyProtocol: Direct}}]", []string{"egressSelections[1].name"}},
		{"no protocol", selection("{}"), []string{one + ".connection.proxyProtocol"}},
		{"unknown protocol", selection("{proxyProtocol: httpConnect}"), []string{one + ".connection.proxyProtocol"}},
		{"direct with transport", selection("{proxyProtocol: Direct, transport: {}}"), []string{one + ".connection.transport"}},
		{"no transport", selection("{proxyProtocol: HTTPConnect}"), []string{one + ".connection.transport"}},
		{"empty transport", httpConnect("{}"), []string{one + ".connection.transport"}},
		{"both transports", httpConnect("{tcp: {}, uds: {}}"), []string{one + ".connection.transport"}},
		{"GRPC by TCP", selection("{proxyProtocol: GRPC, transport: {tcp: {url: 'https://a:1'}}}"), []string{one + ".connection.transport.uds"}},
		{"GRPC by both", selection("{proxyProtocol: GRPC, transport: {tcp: {url: 'https://a:1'}, uds: {udsName: /x}}}"), []string{one + ".connection.transport.tcp"}},
		{"no socket", httpConnect("{uds: {}}"), []string{socket}},
		{"relative socket", uds("run/x.sock"), []string{socket}},
		{"abstract socket", uds("@x"), []string{socket}},
		{"socket by URL", uds("unix:///x"), []string{socket}},
		{"folder", uds("/run/"), []string{socket}},
		{"http, at which kube-apiserver panics", httpConnect("{tcp: {url: 'http://127.0.0.1:8131'}}"), []string{url, one + ".connection.transport.tcp.tlsConfig"}},
		{"http with TLS", tcp("http://127.0.0.1:8131"), []string{url}},
		{"no URL", tcp(""), []string{url}},
		{"no scheme", tcp("127.0.0.1:8131"), []string{url}},
		{"no host", tcp("https://:8131"), []string{url}},
		{"no port", tcp("https://a"), []string{url}},
		{"empty port", tcp("https://a:"), []string{url}},
		{"port zero", tcp("https://a:0"), []string{url}},
		{"user info without a port", tcp("https://u:secret@a"), []string{url}},
		{"path", tcp("https://a:1/x"), []string{url}},
		{"no files", httpConnect("{tcp: {url: 'https://a:1', tlsConfig: {}}}"), []string{one + ".connection.transport.tcp.tlsConfig.clientCert", one + ".connection.transport.tcp.tlsConfig.clientKey"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := egress.Parse([]byte(tt.text))
			if err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
			if got := fieldsOf(err); !slices.Equal(got, tt.want) {
				t.Errorf("got fields %q of %v, want %q", got, err, tt.want)
			}
		})
	}
}
