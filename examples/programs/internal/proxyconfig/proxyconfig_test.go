package proxyconfig

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runCommand(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, notes strings.Builder
	_, err = command.Execute(t.Context(), Command(), args, strings.NewReader(""), &out, &notes)
	return out.String(), notes.String(), err
}

const file = `name: prod
installation:
  http: http://user:SECRET%40@proxy.test:3128
  https: http://user:SECRET%40@proxy.test:3128
  noProxy: corp.test
cluster:
  pods: [10.244.0.0/16]
  services: [10.96.0.0/12]
  layout: giantswarm
user:
  noProxy: mesh.test
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFormats(t *testing.T) {
	const list = "cluster.local,10.96.0.0/12,10.244.0.0/16,corp.test,mesh.test,svc,127.0.0.1,localhost"
	path := write(t, file)
	for _, c := range []struct{ format, want string }{
		{"env", "export HTTP_PROXY='http://user:SECRET%40@proxy.test:3128'\n"},
		{"env", "export no_proxy='" + list + "'\n"},
		{"docker-env", "no_proxy=" + list + "\n"},
		{"systemd", "Environment=\"https_proxy=http://user:SECRET%%40@proxy.test:3128\"\n"},
		{"kubeadm", "files:\n- contentFrom:\n    secret:\n      key: containerdProxy\n      name: prod-systemd-proxy\n  path: /etc/systemd/system/containerd.service.d/http-proxy.conf\n  permissions: \"0600\"\n"},
		{"kubeadm", "preKubeadmCommands:\n- systemctl daemon-reload\n- systemctl try-restart containerd.service || true\n"},
		{"values", "kind: ConfigMap\n"},
		{"values", "        DNS:\n          IP: 10.96.0.10\n"},
		{"values", "name: prod-systemd-proxy\n"},
		{"docker", `"noProxy": "` + list + `"`},
		{"jvm", "\"-Dhttp.proxyPassword=SECRET@\"\n"},
	} {
		got, _, err := runCommand(t, "--file", path, "--format", c.format)
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: got error %v and\n%s\nwant in it\n%s", c.format, err, got, c.want)
		}
		if hidden := c.format == "kubeadm"; hidden == strings.Contains(got, "SECRET") && c.format != "values" {
			t.Errorf("%s: the password is in the output: %t:\n%s", c.format, !hidden, got)
		}
	}
	for _, format := range formats {
		if _, _, err := runCommand(t, "--file", path, "--format", format); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// A flag changes one setting of the file, and leaves the others.
func TestFlagsChangeTheFile(t *testing.T) {
	path := write(t, file+"  https: http://own.test:1\n  ownList: true\n") // of the user
	got, _, err := runCommand(t, "--file", path, "--pods", "10.9.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"HTTP_PROXY='http://user:SECRET%40@proxy.test:3128'", "HTTPS_PROXY='http://own.test:1'", "10.9.0.0/16,mesh.test,svc"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %s in it", got, want)
		}
	}
	t.Setenv("CAUSEWAY_PROXYCONFIG_HTTPS", "http://variable.test:1")
	if got, _, err := runCommand(t); err != nil || !strings.Contains(got, "HTTPS_PROXY='http://variable.test:1'") {
		t.Errorf("got error %v and\n%s\nwant the variable's proxy", err, got)
	}
}

// The section of charts' values is the installation's, and a flag changes it.
func TestFileHasTheProxySectionOfValues(t *testing.T) {
	for _, text := range []string{
		"global: {connectivity: {proxy: {enabled: true, noProxy: '172.16.0.0/16,internal.corpdomain.net,example.com', httpProxy: 'http://u:SECRET@192.168.52.220:3128', httpsProxy: 'http://u:SECRET@192.168.52.220:3128'}}}",
		"cluster: {proxy: {noProxy: '172.16.0.0/16,internal.corpdomain.net,example.com', httpProxy: 'http://u:SECRET@192.168.52.220:3128', httpsProxy: 'http://u:SECRET@192.168.52.220:3128'}}",
	} {
		path := write(t, text)
		got, _, err := runCommand(t, "--file", path, "--format", "docker", "--https", "http://own.test:1")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"httpProxy": "http://u:SECRET@192.168.52.220:3128"`, `"httpsProxy": "http://own.test:1"`, "172.16.0.0/16,internal.corpdomain.net,example.com"} {
			if !strings.Contains(got, want) {
				t.Errorf("got\n%s\nwant %s in it", got, want)
			}
		}
	}
}

func TestOptionsOfValues(t *testing.T) {
	path := write(t, file)
	plain, _, err := runCommand(t, "--file", path, "--format", "values")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--credentials", "machines"}, {"--credentials", "nowhere"}, {"--containerd-list", "installation"}, {"--env-secret", "proxy"}, {"--namespace", "org"},
		{"--values-layout", "rfc"}, {"--values-name", "proxy-values"}, {"--systemd-name", "machine-proxies"}} {
		got, _, err := runCommand(t, append(args, "--file", path, "--format", "values")...)
		if err != nil || got == plain {
			t.Errorf("%q: got error %v and the same: %t", args, err, got == plain)
		}
	}
}

func TestStaticPods(t *testing.T) {
	path := write(t, file)
	for _, c := range []struct {
		way, want string
		secret    bool
		findings  int
	}{
		{"none", "  path: /etc/systemd/system/crio.service.d/http-proxy.conf\n", false, 0},
		{"environment", "- . /etc/kubernetes/kubeadm-proxy.sh\n", false, 2},
		{"patches", "joinConfiguration:\n  patches:\n    directory: /etc/kubernetes/patches\n", false, 2},
		{"extra-envs", "  etcd:\n    local:\n      extraEnvs:\n      - name: HTTP_PROXY\n        value: http://proxy.test:3128\n", false, 3},
		{"extra-envs-with-credentials", "      - name: HTTP_PROXY\n        value: http://user:SECRET%40@proxy.test:3128\n", true, 2},
	} {
		got, notes, err := runCommand(t, "--file", path, "--format", "kubeadm", "--unit", "crio", "--static-pods", c.way)
		if err != nil || !strings.Contains(got, c.want) || strings.Contains(got, "SECRET") != c.secret {
			t.Errorf("%s: got error %v and\n%s\nwant in it\n%s", c.way, err, got, c.want)
		}
		if n := strings.Count(notes, "\n"); n != c.findings || strings.Contains(notes, "SECRET") || strings.Contains(notes, "--nodes") != (n > 0) {
			t.Errorf("%s: want %d findings, the nodes' networks among them:\n%s", c.way, c.findings, notes)
		}
	}
}

func TestFindingsAreOnStderr(t *testing.T) {
	out, notes, err := runCommand(t, "--format", "jvm", "--https", "http://a:1", "--no-proxy", "10.128.0.0/9", "--lint", "wget")
	if err != nil || !strings.Contains(notes, "jvm") || !strings.Contains(notes, "wget") || strings.Contains(out, "wget") {
		t.Errorf("got error %v, output\n%s\nand notes\n%s", err, out, notes)
	}
}

func TestEntriesThatCoverNothing(t *testing.T) {
	for _, list := range []string{"a.test b.test", "a;b", "10.0.0.0/33"} {
		out, notes, err := runCommand(t, "--https", "http://a:1", "--no-proxy", "c.test,"+list)
		if err != nil || !strings.Contains(out, list) || !strings.Contains(notes, strconv.Quote(list)) || strings.Contains(notes, "c.test") {
			t.Errorf("%s: got error %v, output\n%s\nand notes\n%s", list, err, out, notes)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{"--format", "x"}, `"--format" flag: want env, docker-env, systemd, kubeadm, values, docker or jvm`, true},
		{[]string{"x"}, `unexpected argument "x"`, true},
		{[]string{"--layout", "x"}, `"--layout" flag: want merged or giantswarm`, true},
		{[]string{"--lint", "x"}, "--lint: ", true},
		{[]string{"--format", "kubeadm"}, "--name must be set", true},
		{[]string{"--format", "kubeadm", "--name", "{{x}}"}, "--name: ", true},
		{[]string{"--format", "kubeadm", "--name", "a", "--systemd-name", "x\ny"}, "--systemd-name: ", true},
		{[]string{"--format", "kubeadm", "--name", "a", "--systemd-name", "\x1b"}, "--systemd-name: ", true},
		{[]string{"--format", "kubeadm", "--name", "a", "--unit", "a b"}, "--unit", true},
		{[]string{"--format", "kubeadm", "--name", "a", "--static-pods", "x"}, `"--static-pods" flag: want none, environment, patches, extra-envs or extra-envs-with-credentials`, true},
		{[]string{"--format", "values", "--name", "a", "--credentials", "x"}, `"--credentials" flag: want everywhere, machines or nowhere`, true},
		{[]string{"--format", "values", "--name", "a", "--containerd-list", "x"}, `"--containerd-list" flag: want computed or installation`, true},
		{[]string{"--format", "values"}, "--name must be set", true},
		{[]string{"--format", "values", "--name", "a", "--values-layout", "x"}, `"--values-layout" flag: want charts or rfc`, true},
		{[]string{"--format", "values", "--name", "a", "--values-name", "proxy"}, "--values-name: ", true},
		{[]string{"--https", "http://u:SECRET@x@a"}, "--https: ", true},
		{[]string{"--file", "/no/such/file"}, "--file: ", false},
		{[]string{"--file", write(t, "SECRET: 1\n")}, "--file: a key of the file is unknown; want name, namespace, installation, cluster, user, proxy, global", false},
		{[]string{"--file", write(t, "user: {SECRET: 1}\n")}, "--file: a key of user is unknown; want http, https, noProxy, direct, ownList", false},
		{[]string{"--file", write(t, "user: {http: [SECRET]}\n")}, "--file: a key is there twice, or", false},
		{[]string{"--file", write(t, "proxy: {SECRET: 1}\n")}, "--file: proxy has an unknown key; want one of http, https, noProxy, httpProxy, httpsProxy, enabled", false},
		{[]string{"--file", write(t, "proxy: {http: http://u:SECRET@x@a}\n")}, "--file: proxy.http: more than one @", false},
		{[]string{"--file", write(t, "proxy: {http: http://SECRET@a, httpProxy: http://SECRET@b}\n")}, "--file: proxy.httpProxy: differs from proxy.http", false},
		{[]string{"--file", write(t, "cluster: {proxy: {https: http://u:SECRET@x@a}}\n")}, "--file: cluster.proxy.https: more than one @", false},
		{[]string{"--file", write(t, "proxy: {http: http://SECRET@a}\ninstallation: {http: http://SECRET@b}\n")}, "--file: installation.http is not what the section proxy says", false},
		{[]string{"--file", write(t, "installation: {https: http://u:SECRET@x@a}\n")}, "--file: installation.https: more than one @", false},
		{[]string{"--file", write(t, "installation: {https: http://SECRET@a}\n"), "--http", "http://u:SECRET@x@a"}, "--http: more than one @", false},
		{[]string{"--file", write(t, "cluster: {pods: [10.0.0.0/33]}\n")}, "--file: cluster.pods entry 0", false},
		{[]string{"--file", write(t, "proxy: {http: http://u:%C3%A9SECRET@a}\n"), "--format", "jvm"}, "--file: installation.http: the user name or the password has a character", false},
		{[]string{"--file", write(t, "- SECRET\n")}, "--file: a key is there twice, or", false},
		{[]string{"--file", write(t, "SECRET: [\n")}, "--file: not YAML", false},
		{[]string{"--file", write(t, "installation: {direct: true}\n")}, "the user's", true},
	} {
		out, _, err := runCommand(t, c.args...)
		var mistake cli.UsageError
		if out != "" || err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &mistake) != c.usage || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: got %q and error %v, want %q", c.args, out, err, c.want)
		}
	}
}
