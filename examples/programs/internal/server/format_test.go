package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/causewayproject/causeway/examples/deploy"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
)

// enrolled returns what enroll prints for a cluster with an odd name.
func enrolled(t *testing.T, format string, more ...string) string {
	t.Helper()
	var out bytes.Buffer
	args := []string{"enroll", oddCluster, "--state", newState(t), "--server", "192.0.2.1:8443,wss://tunnel.example.com/a?b=$c", "--format", format, "--life", "2h",
		"--image", "registry.example/agent@sha256:0", "--namespace", "tunnels"}
	if err := run(t.Context(), append(args, more...), nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const oddCluster = `it's/"$(prod)"%n;#`

// checkInvitation reads the text form as an agent does.
func checkInvitation(t *testing.T, text string) {
	t.Helper()
	inv, err := tunnel.ParseInvitation(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	left := time.Until(inv.Expires)
	if inv.Cluster != oddCluster || len(inv.Servers) != 2 || inv.Servers[1] != "wss://tunnel.example.com/a?b=$c" || left < time.Hour || left > 2*time.Hour {
		t.Errorf("got %v for %q in %v", inv, inv.Servers, left)
	}
}

func TestEnrollEnv(t *testing.T) { checkInvitation(t, enrolled(t, "env")) }

// A shell makes of the command line what the agent is to find.
func TestEnrollCommand(t *testing.T) {
	line := enrolled(t, "command")
	if strings.Count(line, "\n") != 1 {
		t.Errorf("got %q, want one line", line)
	}
	dir := t.TempDir()
	fake := "#!/bin/sh\nenv | grep ^CAUSEWAY_ >env\necho \"$@\" >args\n"
	if err := os.WriteFile(filepath.Join(dir, "causeway-agent"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env, _ := os.ReadFile(filepath.Join(dir, "env"))
	checkInvitation(t, string(env))
	if args, _ := os.ReadFile(filepath.Join(dir, "args")); string(args) != "--state ./agent-state\n" {
		t.Errorf("got arguments %q, want no secret among them", args)
	}
}

// The commands in the comments make the two files.
func TestEnrollSystemd(t *testing.T) {
	text := enrolled(t, "systemd")
	var invitation, unit, commands strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "#= "):
			invitation.WriteString(line[3:])
		case strings.HasPrefix(line, "#   "):
			commands.WriteString(line[4:])
		case !strings.HasPrefix(line, "#"):
			unit.WriteString(line)
		}
	}
	checkInvitation(t, invitation.String())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tunnel-agent.service"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "etc/systemd/system"), 0o700); err != nil {
		t.Fatal(err)
	}
	script := "set -e\nsystemctl() { :; }\n" + strings.ReplaceAll(commands.String(), "/etc/", "etc/")
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range []struct {
		name, want string
		mode       os.FileMode // bits that must not be set
	}{
		{"etc/tunnel-agent/invitation.env", invitation.String(), 0o077},
		{"etc/systemd/system/tunnel-agent.service", unit.String(), 0},
	} {
		got, err := os.ReadFile(filepath.Join(dir, file.name))
		info, statErr := os.Stat(filepath.Join(dir, file.name))
		if err != nil || statErr != nil || string(got) != file.want || info.Mode()&file.mode != 0 {
			t.Errorf("%s: got %q, %v, %v; want %q", file.name, got, info, err, file.want)
		}
	}
	if strings.Contains(unit.String(), "CAUSEWAY_") {
		t.Error("the unit holds a variable of the invitation, which systemd shows to every user")
	}
}

// decode is strict: a field that Kubernetes does not know is an error.
func decode(t *testing.T, text string) (objects []runtime.Object) {
	t.Helper()
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	for document := range strings.SplitSeq(text, "---\n") {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// The Secret is what the base lacks.
func TestEnrollSecret(t *testing.T) {
	objects := decode(t, enrolled(t, "secret"))
	base := decode(t, deploy.Agent())
	secret, deployment := objects[0].(*corev1.Secret), object[*appsv1.Deployment](t, base)
	checkInvitation(t, secret.StringData["invitation.env"])
	if len(objects) != 1 || secret.Namespace != "tunnels" || deployment.Spec.Template.Spec.Volumes[0].Secret.SecretName != secret.Name {
		t.Errorf("got %d objects, %s/%s", len(objects), secret.Namespace, secret.Name)
	}
}

func TestBadCommands(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, authorityFile), []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	anyPort := newState(t)
	if err := saveGateway(t.Context(), newDirState(anyPort, 0), &doorFlags{connect: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, args, want string
		usage            bool
	}{
		{"no cluster", "enroll --state DIR --server a:1", "CLUSTER is missing; usage: causeway enroll CLUSTER [flags]", true},
		{"two clusters", "enroll a b --state DIR --server a:1", `unexpected argument "b"`, true},
		{"format", "enroll a --state DIR --server a:1 --format xml", "want command, env, manifest, secret or systemd", true},
		{"no server", "enroll a --state DIR", "--advertise", true},
		{"bad life", "enroll a --state DIR --server a:1 --life -5m", "--life must be at least 1s", true},
		{"a life that is over", "enroll a --state DIR --server a:1 --life 1ns", "--life must be at least 1s", true},
		{"server's scheme", "enroll a --state DIR --server ftp://u:canary@a:1", "--server: address 1: ", true},
		{"proxy", "enroll a --state DIR --server a:1 --proxy http://u:canary/@p:1", "--proxy: ", true},
		{"proxy's scheme", "enroll a --state DIR --server a:1 --proxy canary:p", "--proxy: ", true},
		{"list without a proxy", "enroll a --state DIR --server a:1 --no-proxy b", "--no-proxy is for --proxy", true},
		{"a password that is not encoded", "enroll a --state DIR --server a:1 --proxy http://u:SECRET@@p:1", "--proxy: more than one @", true},
		{"a namespace of others", "enroll a --state DIR --server a:1 --format manifest --namespace kube-system", "--namespace kube-system is others'", true},
		{"no namespace", "enroll a --state DIR --server a:1 --format secret --namespace A_b", "--namespace \"A_b\" is not", true},
		{"list beside direct", "enroll a --state DIR --server a:1 --proxy direct --no-proxy b", "--no-proxy is for a proxy", true},
		{"bad list", "enroll a --state DIR --server a:1 --proxy http://p:1 --no-proxy b,10.0.0.0/99", `--no-proxy entry 1 "10.0.0.0/99"`, true},
		{"bad target", "enroll a --state DIR --server a:1 --allow b", `--allow, entry "b"`, true},
		{"a command in the proxy's host", "enroll a --state DIR --server a:1 --proxy http://a$(id)b:1", "--proxy: it has the character '$'", true},
		{"a quote in the proxy's host", "enroll a --state DIR --server a:1 --proxy http://a'b:1", "--proxy: it has the character '\\''", true},
		{"a character that is not seen in a list", "enroll a --state DIR --server a:1 --proxy http://p:1 --no-proxy a\u200bb", "--no-proxy: an entry has the character '\\u200b'", true},
		{"a character that is not seen in a target", "enroll a --state DIR --server a:1 --allow a\u00adb:1", "--allow: \"a\\u00adb:1\" has the character", true},
		{"an image with a space", "enroll a --state DIR --server a:1 --format env --image x:\u2060y", "--image has a space", true},
		{"an image of two lines", "enroll a --state DIR --server a:1 --format manifest --image a\u009bb", "--image has a control character (U+009B)", true},
		{"no image", "enroll a --state DIR --server a:1 --format manifest --image=", "--image is no image", true},
		{"an image that is a variable", "enroll a --state DIR --server a:1 --format manifest --image $(HOME)", "--image is no image", true},
		{"target in env", "enroll a --state DIR --server a:1 --allow b:1 --format env", "--allow is an argument of the agent: with --format env, give it there", true},
		{"pod in env", "enroll a --state DIR --server a:1 --host-network --format env", "are for --format manifest", true},
		{"API server", "enroll a --state DIR --server a:1 --api-server b --format manifest", `--api-server "b" is not HOST:PORT`, true},
		{"API server's URL", "enroll a --state DIR --server a:1 --api-server https://b:1 --format manifest", "is not HOST:PORT", true},
		{"bad cluster", "enroll a|b --state DIR --server a:1", "cluster", false},
		{"no directory", "enroll a --state FILE --server a:1", "--state", false},
		{"broken authority", "enroll a --state BROKEN --server a:1", "BROKEN/authority.pem", false},
		{"revoke what is no agent", "revoke a ../x|y --state DIR", "the name of the agent holds", false},
		{"revoke what is no cluster", "revoke a|b --all --state DIR", "cluster", false},
		{"revoke without agent", "revoke a --state DIR", "AGENT", true},
		{"payload without name", "payload a --state DIR", "NAME", true},
		{"payload for a|b", "payload a|b name --state DIR", "CLUSTER: want at most 507 bytes", true},
		{"ticket for a|b", "ticket a|b --state DIR --gateway http://a", "CLUSTER: want at most 507 bytes", true},
		{"large payload", "payload a b --state DIR", "more than", false},
		{"no payload", "payload a b --state DIR", "would lose what they have of \"b\"; --force takes it away", false},
		{"ticket, port 0", "ticket a --state DIR --gateway http://a:0", "--gateway", true},
		{"ticket, port", "ticket a --state DIR --gateway http://a:99999", "--gateway", true},
		{"ticket, host", "ticket a --state DIR --gateway http://a_,b:1", "--gateway", true},
		{"ticket, path", "ticket a --state DIR --gateway http://a:1/x", "--gateway", true},
		{"ticket, query", "ticket a --state DIR --gateway http://a:1?x=1", "--gateway", true},
		{"ticket, scheme", "ticket a --state DIR --gateway ftp://a:1", "--gateway", true},
		{"ticket, no cluster", "ticket EMPTY --state DIR --gateway http://a:1", "CLUSTER: want at most 507 bytes", true},
		{"ticket, life", "ticket a --state DIR --gateway http://a:1 --life 1ms", "--life must be at least 1s", true},
		{"ticket, server at port 0", "ticket a --state PORT0", "the gateway's URL is unknown", true},
		{"serve, argument", "server x", `unexpected argument "x"`, true},
		{"serve, nobody", "--listen=", "no agent can connect", true},
		{"serve, certificate without key", "--websocket 127.0.0.1:0 --websocket-cert x", "go together", true},
		{"serve, no certificate", "--state DIR --websocket 127.0.0.1:0 --websocket-cert FILE --websocket-key FILE", "--websocket-cert", false},
		{"serve, forward", "--state DIR --forward 127.0.0.1:0", "LISTEN=CLUSTER/HOST:PORT", true},
		{"serve, forward without cluster", "--state DIR --forward 127.0.0.1:0=/a:1", "LISTEN=CLUSTER/HOST:PORT", true},
		{"serve, forward with a password", "--state DIR --forward 127.0.0.1:0=a/u:canary@b:1", `--forward "xxxxx@b:1": the target: it has no port`, true},
		{"serve, forward to port 0", "--state DIR --forward 127.0.0.1:0=a/b:0", "its port is not a number", true},
		{"serve, listen with a password", "--state DIR --listen u:canary@127.0.0.1:0", `"xxxxx@127.0.0.1:0" is not HOST:PORT`, true},
		{"serve, forward without port", "--state DIR --forward 127.0.0.1:0=a/b", "the target: it has no port", true},
		{"serve, address", "--state DIR --forward 192.0.2.1:1=a/b:1", "--forward", false},
		{"serve, address for agents", "--state DIR --listen 192.0.2.1:1", "--listen", false},
		{"serve, address for WebSockets", "--state DIR --websocket 192.0.2.1:1", "--websocket", false},
		{"serve, address of a door", "--state DIR --connect 192.0.2.1:1", "--connect", false},
		{"serve, watch", "--watch 0", "--watch", true},
		{"serve, broken authority", "--state BROKEN", "BROKEN/authority.pem", false},
		{"serve, scheme to advertise", "--advertise a:1,ftp://b:1", "--advertise: address 2: ", true},
		{"serve, scheme of a peer", "--peers https://b", "--peers: address 1: ", true},
		{"serve, address without a port", "--advertise a", "--advertise: address 1: the server's address is neither host:port nor a ws or wss URL", true},
		{"serve, address without a host", "--advertise :8443", "--advertise: address 1: it has no host", true},
		{"serve, address with port 0", "--advertise a:0", "--advertise: address 1: its port", true},
		{"serve, address with a name of a port", "--advertise a:https", "--advertise: address 1: its port", true},
		{"enroll, address without a host", "enroll a --state DIR --server :1", "--server: address 1: it has no host", true},
		{"serve, peer without a port", "--peers b", "--peers: address 1: the server's address is neither host:port nor a ws or wss URL", true},
		{"serve, garbage as a peer", "--peers b:1,!?*:7", "--peers: address 2: its host", true},
		{"serve, URL of a peer with port 0", "--peers wss://b:0", "--peers: address 1: its port", true},
		{"serve, server name without a port", "--sni 127.0.0.1:0 --sni-name a=default/prod/b", `--sni-name "a=default/prod/b": the target: it has no port`, true},
		{"serve, server name without a host", "--sni 127.0.0.1:0 --sni-name a=default/prod/:1", "--sni-name", true},
		{"serve, name", "--state DIR --name a|b", `--name "a|b"`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := strings.Fields(strings.NewReplacer("DIR", newState(t), "FILE", file, "BROKEN", broken, "PORT0", anyPort).Replace(tt.args))
			for i := range args {
				args[i] = strings.TrimPrefix(args[i], "EMPTY")
			}
			if !slices.Contains([]string{"enroll", "revoke", "payload", "ticket"}, args[0]) {
				args = append(args[:len(args):len(args)], "--status=")
				if !strings.Contains(tt.args, "--listen") {
					args = append(args, "--listen=127.0.0.1:0")
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var stderr strings.Builder
			stdin := strings.Repeat("x", 2<<20)
			if tt.name == "no payload" {
				stdin = ""
			}
			err := run(ctx, args, strings.NewReader(stdin), io.Discard, &stderr)
			if strings.Contains(stderr.String(), "warning") {
				t.Errorf("got %q before the refusal, want no warning", &stderr)
			}
			var mistake cli.UsageError
			want := strings.ReplaceAll(tt.want, "BROKEN", broken)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") || errors.As(err, &mistake) != tt.usage {
				t.Errorf("got %v, want %q, a mistake of usage %v", err, want, tt.usage)
			}
		})
	}
}
