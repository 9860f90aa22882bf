package connect_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/kubeconfig/connect"
)

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	inside := "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: ca.crt}}]\n" +
		"users: [{name: u, user: {client-key: key.pem}}]\n"
	for _, test := range []struct {
		name, text string
		says       string // after the path; empty: no error
	}{
		{"relative paths", inside, ""},
		{"not a kubeconfig", "s3cret: [s3cret", ": is not YAML"},
		{"cut short", inside[:40] + "s3cret", ": is not YAML"},
	} {
		t.Run(test.name, func(t *testing.T) {
			writeFile(t, path, []byte(test.text))
			config, err := connect.ReadFile(path)
			if test.says != "" {
				if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(err.Error(), "connect: file "+path+test.says) {
					t.Errorf("got %v, want the path and %q, without the content", err, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := config.Clusters["c"].CertificateAuthority, filepath.Join(dir, "ca.crt"); got != want {
				t.Errorf("got CA file %s, want %s", got, want)
			}
			if got, want := config.AuthInfos["u"].ClientKey, filepath.Join(dir, "key.pem"); got != want {
				t.Errorf("got key file %s, want %s", got, want)
			}
		})
	}
	if _, err := connect.ReadFile(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that there is no file", err)
	}
}
