package kubeconfig_test

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

func fromText(text string) (*clientcmdapi.Config, error) {
	return kubeconfig.FromSecret(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-kubeconfig"},
		Data:       map[string][]byte{kubeconfig.SecretKey: []byte(text)},
	})
}

func ofUser(fields string) string    { return "users: [{name: u, user: {" + fields + "}}]" }
func ofCluster(fields string) string { return "clusters: [{name: c, cluster: {" + fields + "}}]" }

func ofExtension(fields string) string {
	return ofCluster("extensions: [{name: " + kubeconfig.ExtensionName + ", extension: {" + fields + "}}]")
}

const ofRoute = "apiVersion: " + kubeconfig.ExtensionAPIVersion + ", kind: " + kubeconfig.ExtensionKind + ", "

func data(text []byte) string { return base64.StdEncoding.EncodeToString(text) }

// hugeKey is an RSA key of 32,768 bits, without primes.
func hugeKey(t *testing.T) []byte {
	number := new(big.Int).SetBit(big.NewInt(1), 1<<15-1, 1)
	der, err := asn1.Marshal(struct {
		Version                         int
		N, E, D, P, Q, Dp, Dq, Inverted *big.Int
	}{0, number, big.NewInt(65537), number, number, number, number, number, number})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der})
}

// hugeCA is a CA whose key has 16,384 bits.
func hugeCA(t *testing.T) []byte {
	ca := pki.NewCA("ca")
	n := new(big.Int).SetBit(big.NewInt(1), 1<<14-1, 1)
	der, err := x509.CreateCertificate(nil, ca.Cert, ca.Cert, &rsa.PublicKey{N: n, E: 65537}, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// entries is a list of so many entries of a kubeconfig.
func entries(n int, entry string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, entry+"\n", i)
	}
	return b.String()
}

// nested are aliases that stand for ten of another, and so on.
func nested(depth int) string {
	text := "a0: &a0 " + strings.Repeat("x", 1000) + "\n"
	for i := range depth {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	return text
}

const (
	program   = ": names a program. A kubeconfig that is not this program's own is only data: want a token, or client-certificate-data and client-key-data"
	file      = ": names a file. A kubeconfig that is not this program's own is only data: want the data itself"
	manyItems = "is too large: a list or mapping in it has 1001 items, want at most 1000"
	inRoute   = `clusters["c"].extensions["causewayproject.github.io/route"].`
)

// A kubeconfig of somebody else is only data.
func TestFromSecretRefuses(t *testing.T) {
	ca := data(pki.NewCA("ca").CertPEM())
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "is empty"},
		{"unreadable", "users: *" + kubetest.Canary, "is not YAML, or not a mapping"},

		{"a program", ofUser("exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}"), `users["u"].exec` + program},
		{"a program without a command", ofUser("exec: {}"), `users["u"].exec` + program},
		{"a plugin", ofUser("auth-provider: {name: gcp}"), `users["u"].auth-provider` + program},
		{"a token", ofUser("tokenFile: /run/token"), `users["u"].tokenFile` + file},
		{"a token beside a token", ofUser("token: t, tokenFile: /run/token"), `users["u"].tokenFile` + file},
		{"a certificate", ofUser("client-certificate: c"), `users["u"].client-certificate` + file},
		{"a certificate beside its data", ofUser("client-certificate: c, client-certificate-data: " + ca), `users["u"].client-certificate` + file},
		{"a key", ofUser("client-key: k"), `users["u"].client-key` + file},
		{"a CA", ofCluster("certificate-authority: ca.crt"), `clusters["c"].certificate-authority` + file},
		{"a CA beside its data", ofCluster("certificate-authority: ca.crt, certificate-authority-data: " + ca), `clusters["c"].certificate-authority` + file},
		{"of another context", "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: t}}, {name: u, user: {exec: {}}}]", `users["u"].exec` + program},
		{"by an alias", "x: &x {command: sh}\n" + ofUser("exec: *x"), `users["u"].exec` + program},
		{"by a merge", "x: &x {exec: {}}\n" + ofUser("<<: *x"), `users["u"].exec` + program},
		{"a key twice", ofUser("token: t, exec: null, exec: {}"), `users["u"].exec` + program},
		{"in the form of client-go's memory", "apiVersion: __internal\nkind: Config\nusers: {u: {tokenFile: /run/token}}\nclusters: {c: null}", `users["u"].tokenFile` + file},

		{"the proxy's CA", ofExtension(ofRoute + "proxyTLS: {certificateAuthority: ca.crt}"), inRoute + "proxyTLS.certificateAuthority" + file},
		{"the proxy's CA beside its data", ofExtension(ofRoute + "proxyTLS: {certificateAuthority: ca.crt, certificateAuthorityData: " + ca + "}"), inRoute + "proxyTLS.certificateAuthority" + file},
		{"the proxy's certificate", ofExtension(ofRoute + "proxyTLS: {clientCertificate: c}"), inRoute + "proxyTLS.clientCertificate" + file},
		{"the proxy's key", ofExtension(ofRoute + "proxyTLS: {clientKey: k}"), inRoute + "proxyTLS.clientKey" + file},
		{"of another version", ofExtension("apiVersion: v9, kind: Route, proxyTLS: {clientKey: k}"), inRoute + "proxyTLS.clientKey" + file},
		{"in other letters", ofExtension("ProxyTls: {CLIENTKEY: k}"), inRoute + "proxyTLS.clientKey" + file},
		{"beside what nobody knows", ofExtension(ofRoute + "unknown: 1, proxyTLS: {clientKey: [k], unknown: 2}"), inRoute + "proxyTLS.clientKey" + file},

		{"a long text", "# " + strings.Repeat("x", 1<<20), "is too large: it has 1048578 bytes, want at most 1048576"},
		{"many nodes", "x: [" + strings.Repeat(",", 100_000) + "]", "is too large: it has 100002 line ends and signs of YAML, want at most 100000"},
		{"aliases of aliases", nested(9), "is too large: its YAML aliases stand for more than 1048576 bytes"},
		{"aliases of a long string", "a: &a " + strings.Repeat("x", 500_000) + "\nx: [" + strings.Repeat("*a,", 10) + "]", "is too large: its YAML aliases stand for more than 1048576 bytes"},
		{"an alias of itself", "a: &a [*a]", "is too large: its YAML aliases stand for more than 1048576 bytes"},
		{"many keys", "{" + entries(30_000, "a%d:,") + "users: 1}", "is too large: a list or mapping in it has 30001 items, want at most 1000"},
		{"many clusters", "clusters:\n" + entries(1001, "- {name: c%d}"), manyItems},
		{"many users", "users:\n" + entries(1001, "- {name: c%d}"), manyItems},
		{"many contexts", "contexts:\n" + entries(1001, "- {name: c%d}"), manyItems},
		{"a long name", "clusters: [{name: " + strings.Repeat("x", 1025) + "}]", "has an entry whose name is longer than 1024 bytes"},
		{"a long name of the context", "current-context: " + strings.Repeat("x", 1025), "has an entry whose name is longer than 1024 bytes"},
		{"many certificates", ofCluster("certificate-authority-data: " + data([]byte(strings.Repeat(string(pki.NewCA("c").CertPEM()), 513)))), `clusters["c"].certificate-authority-data: holds 513 certificates: want at most 512`},
		{"a CA with a large key", ofCluster("certificate-authority-data: " + data(hugeCA(t))), `clusters["c"].certificate-authority-data: certificate 1: the RSA key has 16384 bits: want at most 8192`},
		{"a certificate with a large key", ofUser("client-certificate-data: " + data(hugeCA(t))), `users["u"].client-certificate-data: certificate 1: the RSA key has 16384 bits: want at most 8192`},
		{"a large key", ofUser("client-key-data: " + data(hugeKey(t))), `users["u"].client-key-data: the private key is too large: want RSA with at most 8192 bits`},
		{"a line end in a user to act as", ofUser(`token: t, as: "a\nImpersonate-Group: system:masters"`), `users["u"].as: has a control character (U+000A)`},
		{"a control character in a UID", ofUser(`token: t, as: a, as-uid: "\u009b"`), `users["u"].as-uid: has a control character (U+009B)`},
		{"a control character in a group", ofUser(`token: t, as: a, as-groups: [g, "\0"]`), `users["u"].as-groups: has a control character (U+0000)`},
		{"a control character in an extra's name", ofUser(`token: t, as: a, as-user-extra: {"a\r": [b]}`), `users["u"].as-user-extra: has a control character (U+000D)`},
		{"a control character in an extra", ofUser(`token: t, as: a, as-user-extra: {a: [b, "\n"]}`), `users["u"].as-user-extra["a"]: has a control character (U+000A)`},
		{"a long token", ofUser("token: " + strings.Repeat("x", 1<<17+1)), `users["u"].token: has 131073 bytes: want at most 131072`},
		{"a long password", ofUser("username: u, password: " + strings.Repeat("x", 1<<17)), `users["u"].password: has, with the user name, 131073 bytes: want at most 131072`},
		{"a long header", ofExtension(ofRoute + "header: {X-A: [" + strings.Repeat("x", 1<<16) + "]}"), inRoute + "header: has 65539 bytes: want at most 65536"},
		{"many endpoints", ofExtension(ofRoute + "endpoints: [" + strings.Repeat(`"10.0.0.1:1", `, 65) + "]"), inRoute + "endpoints: has 65: want at most 64"},
	} {
		t.Run(test.name, func(t *testing.T) {
			began := time.Now()
			config, err := fromText(test.text)
			if want := `kubeconfig: Secret ns/a-kubeconfig: key "value": ` + test.want; err == nil || err.Error() != want {
				t.Errorf("got %v, %v, want %s", config, err, want)
			}
			var invalid *kubeconfig.FieldError
			if name, _, ok := strings.Cut(test.want, ": "); ok && strings.Contains(name, "[") && (!errors.As(err, &invalid) || !strings.HasSuffix(invalid.Field, name)) {
				t.Errorf("got %#v, want a FieldError of %s", err, name)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
			kubetest.CheckLeaks(t, test.name, err)
		})
	}
	_, err := kubeconfig.FromSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-kubeconfig"}})
	if want := `kubeconfig: Secret ns/a-kubeconfig: has no key "value"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What others write for good reasons is taken.
func TestFromSecretTakes(t *testing.T) {
	ca := pki.NewCA("ca")
	cert, key := pki.PEM(ca.Client("u"))
	bundle := []byte("# roots of the company\n")
	for i := range 150 {
		bundle = append(bundle, ca.CertPEM()...)
		bundle = fmt.Appendf(bundle, "Subject: CN=%d\n", i)
	}
	for name, text := range map[string]string{
		"a bundle of 150 CAs with texts":   ofCluster("server: https://api.test, certificate-authority-data: " + data(bundle)),
		"a certificate beside its key":     ofUser("client-certificate-data: " + data(append(cert, key...)) + ", client-key-data: " + data(append(key, cert...))),
		"what is no certificate":           ofCluster("certificate-authority-data: Q0E="),
		"no verification":                  ofCluster("server: https://api.test, insecure-skip-tls-verify: true, disable-compression: true, tls-server-name: kubernetes"),
		"impersonation":                    ofUser(`token: t, as: a, as-uid: "1", as-groups: [g], as-user-extra: {a: [b]}`),
		"a long token":                     ofUser("token: " + strings.Repeat("x", 100<<10)),
		"aliases":                          "x: &x https://api.test:6443\n" + ofCluster("server: *x"),
		"signs of aliases in a password":   ofUser(`username: "u&", password: "p*&*"`),
		"empty paths":                      ofUser(`tokenFile: "", client-certificate: "", client-key: "", exec: null`) + "\n" + ofCluster(`certificate-authority: ""`),
		"a field in letters of nobody":     ofUser("EXEC: {command: sh}, token: t"),
		"an extension without files":       ofExtension(ofRoute + `proxyTLS: {serverName: p, clientKey: "", certificateAuthority: null, secret: {namespace: a, name: b}}`),
		"a broken extension":               ofExtension("proxyTLS: 1"),
		"extensions of others":             "preferences: {colors: true}\nextensions: [{name: minikube, extension: {proxyTLS: {clientKey: k}}}]\n" + ofUser("token: t"),
		"800 clusters, users and contexts": "clusters:\n" + entries(800, "- name: arn:aws:eks:eu-west-1:1:cluster/c%d\n  cluster:\n    server: https://a.test\n    certificate-authority-data: Q0E=") + "users:\n" + entries(800, "- name: u%d\n  user:\n    token: t") + "contexts:\n" + entries(800, "- name: u%[1]d\n  context:\n    cluster: arn:aws:eks:eu-west-1:1:cluster/c%[1]d\n    user: u%[1]d"),
	} {
		t.Run(name, func(t *testing.T) {
			config, err := fromText(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range config.Clusters {
				if c.LocationOfOrigin != "" {
					t.Errorf("got an entry of the file %s", c.LocationOfOrigin)
				}
			}
			for _, u := range config.AuthInfos {
				if u.LocationOfOrigin != "" || u.Exec != nil {
					t.Errorf("got %+v", u)
				}
			}
		})
	}
}

// A Cache has that gate.
func TestCachePassesTheGate(t *testing.T) {
	text := "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n" +
		ofCluster("server: https://127.0.0.1:1, proxy-url: https://127.0.0.1:1, extensions: [{name: "+kubeconfig.ExtensionName+", extension: {"+ofRoute+"proxyTLS: {certificateAuthority: /dev/zero}}}]")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-kubeconfig"}, Data: map[string][]byte{kubeconfig.SecretKey: []byte(text)}}
	_, _, err := new(connect.Cache).Get(secret)
	var invalid *kubeconfig.FieldError
	if !errors.As(err, &invalid) || !strings.HasSuffix(invalid.Field, inRoute+"proxyTLS.certificateAuthority") {
		t.Errorf("got %v, want a FieldError", err)
	}
}
