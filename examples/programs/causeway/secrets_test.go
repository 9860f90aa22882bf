package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/examples/programs/internal/command"
)

// No command repeats the tokens and passwords of a kubeconfig that it can't read:
// client-go's error for two entries of one name quotes them whole.
func TestNoSecretOfKubeconfig(t *testing.T) {
	const canary = "Canary7f3aSecret"
	const text = `apiVersion: v1
kind: Config
current-context: c
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:1", proxy-url: "http://u:` + canary + `@127.0.0.1:1"}}
- {name: d, cluster: {server: "https://127.0.0.1:1", proxy-url: "http://u:` + canary + `@127.0.0.1:1"}}
contexts:
- {name: c, context: {cluster: c, user: u}}
users:
- {name: u, user: {token: ` + canary + `, password: ` + canary + `}}
- {name: v, user: {token: ` + canary + `, password: ` + canary + `}}
`
	for name, config := range map[string]string{
		"two users":        strings.Replace(text, "name: v", "name: u", 1),
		"two clusters":     strings.Replace(text, "name: d", "name: c", 1),
		"a token's type":   strings.Replace(text, "token: "+canary, "token: {"+canary+": x}", 1),
		"broken proxy-url": strings.Replace(text, "@127.0.0.1:1\"", "@127.0.0.1:x%\"", 1),
		"not YAML":         "users: *" + canary,
	} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{
			"doctor --kubeconfig FILE",
			"doctor --kubeconfig FILE --json",
			"doctor",
			"server --secrets a/b --kubeconfig FILE --listen 127.0.0.1:0 --status=",
			"enroll default/prod --server a:1 --secrets a/b --kubeconfig FILE",
			"ticket default/prod --gateway http://a:1 --secrets a/b --kubeconfig FILE",
			"ticket --revoke-all --secrets a/b --kubeconfig FILE",
			"ticket --revoke --secrets a/b --kubeconfig FILE",
			"revoke default/prod agent --secrets a/b --kubeconfig FILE",
			"payload default/prod name --secrets a/b --kubeconfig FILE",
			"rotate add --secrets a/b --kubeconfig FILE",
			"kubeconfig default/prod --gateway http://a:1 --state STATE",
			"provider --kubeconfig FILE --health=",
			"propagator --kubeconfig FILE --health=",
		} {
			t.Setenv("KUBECONFIG", file)
			var out, errs strings.Builder
			_, err := command.Execute(t.Context(), newRoot(), strings.Fields(strings.NewReplacer("FILE", file, "STATE", t.TempDir()).Replace(args)), strings.NewReader(config), &out, &errs)
			if said := fmt.Sprintf("%v\n%+v\n%s\n%s", err, err, &out, &errs); err == nil || strings.Contains(said, canary) {
				t.Errorf("%s: %s: got an error %t, and\n%s", name, args, err != nil, said)
			}
		}
	}
}
