package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel/egress"
)

func serverConfig(ca *pki.CA) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.Pool()}
}

// tlsTarget is a server with a certificate of its own.
func tlsTarget(t *testing.T, ca *pki.CA) string {
	s := proxytest.Serve(tls.NewListener(listen(t, "127.0.0.1:0"), serverConfig(ca)), func(_ context.Context, conn net.Conn) {
		conn.(*tls.Conn).Handshake()
		conn.Read(make([]byte, 1))
	})
	t.Cleanup(s.Close)
	return s.Addr()
}

// What speaks against a switch, and for going back.
func TestFailures(t *testing.T) {
	const off, beside, on = egress.PhaseOff, egress.PhaseBeside, egress.PhaseOn
	fails, broken := result{Error: "refused"}, errors.New("broken")
	kubelet := target{"kubelet", "node", "n:10250"}
	hook := target{"webhook", "hook", "h:443"}
	logs := func(err error) answer { return answer{request{target{"logs", "a/b", "n:10250"}, nil}, err} }
	api := func(err error) answer { return answer{request{target{"aggregated API", "v1.x", "h:443"}, nil}, err} }
	way := func(address string, direct, tunnel result) comparison { return comparison{address, direct, tunnel} }
	for _, tt := range []struct {
		name          string
		from, to      egress.Phase
		ways          []comparison
		waysErr       error
		before, after []answer
		force         bool
		wantBefore    string
		wantAfter     string // "" for none
	}{
		{name: "all well", from: beside, to: on, ways: []comparison{way("n:10250", result{}, result{})}, before: []answer{logs(nil)}, after: []answer{logs(nil)}},
		{name: "only the tunnel works", from: beside, to: on, ways: []comparison{way("n:10250", fails, result{})}, before: []answer{logs(broken)}, after: []answer{logs(nil)}},
		{name: "only direct works", from: beside, to: on, ways: []comparison{way("n:10250", result{}, fails)}, wantBefore: "kubelet node (n:10250) can't be reached through the tunnel, though the other way works: refused"},
		{name: "neither works", from: beside, to: on, ways: []comparison{way("n:10250", fails, fails)}, wantBefore: "no kubelet can be reached through the tunnel, nor directly: refused"},
		{name: "a webhook is down", from: beside, to: on, ways: []comparison{way("n:10250", fails, result{}), way("h:443", fails, fails)}},
		{name: "another server", from: beside, to: on, ways: []comparison{way("n:10250", result{Certificate: "a"}, result{Certificate: "b"})}, wantBefore: "different servers"},
		{name: "not compared", from: beside, to: on, waysErr: broken, wantBefore: "can't be compared: broken"},
		{name: "back, and direct is cut", from: on, to: beside, ways: []comparison{way("n:10250", fails, result{})}, wantBefore: "can't be reached directly, though the other way works"},
		{name: "taken out", from: beside, to: off, ways: []comparison{way("n:10250", result{}, fails)}},
		{name: "logs fail now", from: off, to: beside, before: []answer{logs(nil)}, after: []answer{logs(broken)}, wantAfter: "logs a/b fails: broken"},
		{name: "an API failed before, and nobody reaches it", from: beside, to: on, ways: []comparison{way("h:443", fails, fails)}, before: []answer{api(broken)}, after: []answer{api(broken)}},
		{name: "an API fails, and a log is read", from: off, to: beside, before: []answer{api(nil)}, after: []answer{api(broken), logs(nil)}, wantAfter: "aggregated API v1.x fails: broken"},
		{name: "logs fail, and the tunnel reaches", from: beside, to: on, ways: []comparison{way("n:10250", fails, result{})}, before: []answer{logs(broken)}, after: []answer{logs(broken)}, wantAfter: "logs a/b fails"},
		{name: "forced, as announced", from: on, to: beside, force: true, ways: []comparison{way("n:10250", fails, result{})}, wantBefore: "directly", before: []answer{logs(nil)}, after: []answer{logs(broken)}},
		{name: "forced, not announced", from: beside, to: on, force: true, ways: []comparison{way("n:10250", result{}, result{})}, before: []answer{logs(nil)}, after: []answer{logs(broken)}, wantAfter: "logs a/b fails"},
		{name: "another pod's log", from: beside, to: on, before: []answer{logs(nil)}, after: []answer{logs(broken), logs(nil)}},
		{name: "in its phase", from: on, to: on, ways: []comparison{way("n:10250", fails, result{})}, before: []answer{logs(broken)}, after: []answer{logs(nil)}, wantBefore: "logs a/b fails: broken"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := report{from: tt.from, to: tt.to, targets: []target{kubelet, hook}, ways: byAddress(tt.ways), waysErr: tt.waysErr, before: tt.before, after: tt.after}
			if got := strings.Join(r.failuresBefore(), "\n"); !strings.Contains(got, tt.wantBefore) || (got == "") != (tt.wantBefore == "") {
				t.Errorf("before: got %q, want %q", got, tt.wantBefore)
			}
			if got := strings.Join(r.failuresAfter(tt.force), "\n"); !strings.Contains(got, tt.wantAfter) || (got == "") != (tt.wantAfter == "") {
				t.Errorf("after: got %q, want %q", got, tt.wantAfter)
			}
		})
	}
}

func byAddress(ways []comparison) map[string]comparison {
	all := map[string]comparison{}
	for _, c := range ways {
		all[c.Target] = c
	}
	return all
}

// The kubelet sees a whole manifest, and nothing beside it.
func TestWriteManifest(t *testing.T) {
	dir := t.TempDir()
	manifests, state := filepath.Join(dir, "manifests"), filepath.Join(dir, "state")
	if err := os.Mkdir(manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(manifests, "kube-apiserver.yaml")
	if err := os.WriteFile(path, []byte("one"), 0o640); err != nil {
		t.Fatal(err)
	}
	p := &staticPod{placeFlags: &placeFlags{sidecarFlags: sidecarFlags{manifest: path}, state: state}}
	if err := p.write(t.Context(), []byte("one"), []byte("two"), egress.PhaseOff); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{path: "two", filepath.Join(state, "kube-apiserver.yaml.off"): "one"} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(file); string(text) != want || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: got %q with mode %v, want %q with mode 0640", file, text, info.Mode(), want)
		}
	}
	if entries, _ := os.ReadDir(manifests); len(entries) != 1 {
		t.Errorf("got %v beside the manifest", entries)
	}
	if err := p.write(t.Context(), []byte("one"), []byte("three"), egress.PhaseOff); err == nil || !strings.Contains(err.Error(), "changed it meanwhile") {
		t.Errorf("got %v for a manifest that somebody has changed", err)
	}
}

func TestMistakes(t *testing.T) {
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(pod, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"set half default/prod --manifest /m", "PHASE"},
		{"set on default/prod", "--manifest and --deployment"},
		{"set on default/prod --manifest /m --deployment a/b", "--deployment and --manifest exclude each other"},
		{"set on default/prod --deployment a/b", "--management-kubeconfig"},
		{"set on default/prod --deployment a/b --management-kubeconfig m --kubeconfig k --credentials /c", "--credentials-secret"},
		{"set on default/prod --manifest /m/a.yaml --token-audience a", "--credentials"},
		{"set on default/prod --manifest /m/a.yaml --state /m", "--state"},
		{"set on default/prod --manifest /m/a.yaml --timeout 0s", "--timeout"},
		{"render on default/prod", "--image"},
		{"render on default/prod --image i --gateway http://u:s3cr3t@h:1 --credentials /c", "--gateway"},
		{"render on default/prod --image i --gateway http://h:1 --credentials /c\x7f", "--credentials has a control character"},
		{"render on default/prod --image i --gateway http://h:1 --credentials /c\u202e", "--credentials has a character that changes the direction"},
		{"render on default/prod --image i --gateway http://h\u202e:1 --credentials /c", "--gateway"},
		{"render on default/prod --image i --gateway http://h:1 --credentials /c --dir /d\u200f", "--dir has a character that changes the direction"},
		{"set on default/prod --deployment a/b --management-kubeconfig m --kubeconfig k --credentials /c", "--credentials is for a static pod"},
		{"set on default/prod --deployment a/b_ --management-kubeconfig m --kubeconfig k", "NAMESPACE/NAME"},
		{"set on default/prod --deployment a/b --management-kubeconfig m --kubeconfig k --credentials-secret C_", "--credentials-secret"},
		{"render on default/prod --image i --gateway http://h:1 --credentials-secret c", "a static pod takes --credentials"},
		{"render on default/prod --image i --gateway http://h:1 --manifest " + pod + " --credentials-secret c", "a static pod takes --credentials"},
		{"render on default/prod --image i --gateway http://h:1 --credentials /c --user -1", "--user is less than zero"},
		{"render on default/prod --image i --gateway http://h:1 --credentials /c --dir /", "--dir is the root"},
		{"render on default/prod --image i --gateway http://h:1 --credentials /c --dir /" + strings.Repeat("d", 90), "--dir is too long"},
		{"render on default/\tprod --image i --gateway http://h:1 --credentials /c", "CLUSTER"},
		{"serve default/prod --gateway http://h:1 --dir /d", "--credentials"},
		{"serve default/prod --gateway h:1 --dir /d --credentials /c", "--gateway"},
		{"probe a:1", "--dir"},
	} {
		root := command.Parent(&cobra.Command{Use: "causeway"}, Command())
		_, err := command.Execute(t.Context(), root, append([]string{"egress"}, strings.Split(tt.args, " ")...), nil, io.Discard, io.Discard)
		var mistake cli.UsageError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: got %v, want a mistake with %q", tt.args, err, tt.want)
		}
	}
}

// The first mistake of a newcomer: the directory of the credentials is not there yet.
func TestSetWithoutCredentials(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "kube-apiserver.yaml")
	if err := os.WriteFile(manifest, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"set", "beside", "default/prod", "--manifest", manifest, "--credentials", "/nonexistent", "--image", "i", "--gateway", "http://h:1"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--credentials: open /nonexistent") {
		t.Errorf("got %v, want what is wrong with --credentials", err)
	}
}

// A manifest that is a link is another program's: the file behind it would stay as it was.
func TestManifestLink(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), []byte("one"), 0o600), os.Symlink("file", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	p := &staticPod{placeFlags: &placeFlags{sidecarFlags: sidecarFlags{manifest: filepath.Join(dir, "link")}, state: filepath.Join(dir, "state")}}
	if err := p.write(t.Context(), []byte("one"), []byte("two"), egress.PhaseOff); err == nil || !strings.Contains(err.Error(), "not a file but a link") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(p.state); err == nil {
		t.Error("the refused switch left something in --state")
	}
}

// In a cluster without nodes, the API server is what the tunnel has to reach.
func TestNoNodes(t *testing.T) {
	r := report{from: egress.PhaseBeside, to: egress.PhaseOn, targets: []target{{kindAPIServer, "kubernetes", "k:443"}}}
	r.ways = map[string]comparison{"k:443": {Direct: result{Error: "no such host"}, Tunnel: result{Error: "407"}}}
	if got := r.failuresBefore(); len(got) != 1 || !strings.Contains(got[0], "API server can't be reached through the tunnel: 407") {
		t.Errorf("got %q", got)
	}
	r.ways = map[string]comparison{"k:443": {Direct: result{Error: "no such host"}}}
	if got := r.failuresBefore(); len(got) != 0 {
		t.Errorf("got %q, want nothing: nobody reaches it directly", got)
	}
}
