package restconfig_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/examples/programs/internal/restconfig"
)

// idToken is a JWT that nobody has signed: the API server would verify it.
func idToken(subject string, expires time.Time) string {
	encode := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return encode(map[string]any{"alg": "none"}) + "." + encode(map[string]any{"sub": subject, "exp": expires.Unix()}) + ".x"
}

// A person's kubeconfig may have a user that client-go's plugin logs in. Nothing of it is written: neither
// into the file, nor into the one at home that has a user of the same name.
func TestAuthProvider(t *testing.T) {
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	var s *httptest.Server
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer":%q,"token_endpoint":%q}`, s.URL, s.URL+"/token")
		case "/token":
			fmt.Fprintf(w, `{"access_token":"a","token_type":"Bearer","refresh_token":"next","id_token":%q}`, idToken("renewed", soon))
		default:
			w.Header().Set("Got", r.Header.Get("Authorization"))
		}
	}))
	t.Cleanup(s.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", filepath.Join(home, "config"))
	for _, test := range []struct{ name, provider, want, says string }{
		{"a token", "name: oidc, config: {client-id: first, idp-issuer-url: ISSUER, idp-certificate-authority-data: CA, id-token: " + idToken("given", soon) + "}", idToken("given", soon), ""},
		{"a token that is renewed", "name: oidc, config: {client-id: second, idp-issuer-url: ISSUER, idp-certificate-authority-data: CA, refresh-token: first, id-token: " + idToken("given", past) + "}", idToken("renewed", soon), ""},
		{"a token that has expired", "name: oidc, config: {client-id: third, idp-issuer-url: ISSUER, idp-certificate-authority-data: CA, id-token: " + idToken("given", past) + "}", "", "cannot refresh without refresh-token"},
		{"a provider that is gone", "name: gcp", "", "plugin has been removed"},
		{"another provider", "name: corp", "", `no Auth Provider found for name "corp"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.NewReplacer("ISSUER", s.URL, "CA", ca).Replace("current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
				"clusters: [{name: c, cluster: {server: 'ISSUER', certificate-authority-data: CA}}]\nusers: [{name: u, user: {auth-provider: {" + test.provider + "}}}]\n")
			file := filepath.Join(t.TempDir(), "kubeconfig")
			for _, path := range []string{file, filepath.Join(home, "config")} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := ask(file, s.URL)
			if got != test.want || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, %v, want %q, %q", got, err, test.want, test.says)
			}
			for _, path := range []string{file, filepath.Join(home, "config")} {
				if now, err := os.ReadFile(path); err != nil || string(now) != text {
					t.Errorf("%s was changed: %v", path, err)
				}
			}
		})
	}
}

// ask returns the token that the API server gets.
func ask(file, url string) (string, error) {
	config, err := restconfig.Load(file)
	if err != nil {
		return "", err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(url + "/version")
	if err != nil {
		return "", err
	}
	resp.Body.Close()
	return strings.TrimPrefix(resp.Header.Get("Got"), "Bearer "), nil
}
