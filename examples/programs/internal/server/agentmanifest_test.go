package server

import (
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/deploy"
	"github.com/causewayproject/causeway/noproxy"
)

// object returns the one object of a type.
func object[T runtime.Object](t *testing.T, objects []runtime.Object) (found T) {
	t.Helper()
	n := 0
	for _, o := range objects {
		if o, ok := o.(T); ok {
			found = o
			n++
		}
	}
	if n != 1 {
		t.Fatalf("got %d of %T, want one", n, found)
	}
	return found
}

// secretNamed returns the Secret of a name.
func secretNamed(t *testing.T, objects []runtime.Object, name string) *corev1.Secret {
	t.Helper()
	for _, o := range objects {
		if o, ok := o.(*corev1.Secret); ok && o.Name == name {
			return o
		}
	}
	t.Fatalf("there is no Secret %s", name)
	return nil
}

// The manifest is the base with its Secret, where and with the image that it
// is to be.
func TestEnrollManifest(t *testing.T) {
	text := enrolled(t, "manifest")
	objects := decode(t, text)
	namespace, deployment := object[*corev1.Namespace](t, objects), object[*appsv1.Deployment](t, objects)
	invitation, state := secretNamed(t, objects, "tunnel-agent-invitation"), secretNamed(t, objects, "tunnel-agent-state")
	checkInvitation(t, invitation.StringData["invitation.env"])
	for _, o := range objects {
		if o, ok := o.(metav1.Object); !ok || o != metav1.Object(namespace) && o.GetNamespace() != "tunnels" {
			t.Errorf("got %T in %q, want all in tunnels", o, o.GetNamespace())
		}
	}
	pod := deployment.Spec.Template
	if namespace.Name != "tunnels" || pod.Spec.Containers[0].Image != "registry.example/agent@sha256:0" {
		t.Errorf("got %s, %s", namespace.Name, pod.Spec.Containers[0].Image)
	}
	if pod.Spec.Volumes[0].Secret.SecretName != invitation.Name || deployment.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != pod.Labels["app.kubernetes.io/name"] {
		t.Error("the objects don't refer to each other")
	}
	if len(state.Data)+len(state.StringData) > 0 {
		t.Error("kubectl apply would replace what the agent has written")
	}
	// Rights to its own Secret.
	rule := object[*rbacv1.Role](t, objects).Rules
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{state.Name}, Verbs: []string{"get", "update"}}}
	if diff := cmp.Diff(want, rule); diff != "" {
		t.Error(diff)
	}
	if subject := object[*rbacv1.RoleBinding](t, objects).Subjects[0]; subject.Namespace != "tunnels" || subject.Name != pod.Spec.ServiceAccountName {
		t.Errorf("got the rights for %+v", subject)
	}
	if *deployment.Spec.Replicas != 2 || !slices.Contains(pod.Spec.Containers[0].Args, "--secret="+state.Name) {
		t.Errorf("got %+v", deployment.Spec)
	}
	// What differs from the base are these, and the ports of the servers.
	base := strings.NewReplacer("tunnel-agent\n  labels", "\"tunnels\"\n  labels", "  namespace: tunnel-agent\n", "  namespace: \"tunnels\"\n",
		"causeway-agent:dev", `"registry.example/agent@sha256:0"`).Replace(deploy.Agent())
	if got, _, _ := strings.Cut(text, "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: tunnel-agent-invitation"); got != base {
		t.Error(cmp.Diff(base, got))
	}
}

// A namespace stays a string, whatever YAML reads without quotes.
func TestEnrollNamespace(t *testing.T) {
	for _, want := range []string{"null", "123", "1e3", "0x1f", "true", "off", "yes"} {
		for _, o := range decode(t, enrolled(t, "manifest", "--namespace", want)) {
			if o := o.(metav1.Object); o.GetNamespace() != want && o.GetName() != want {
				t.Errorf("got %T %s in %q, want %s", o, o.GetName(), o.GetNamespace(), want)
			}
		}
	}
}

// A pod is only ended when another one is connected, and one node has them all only if
// there is no other.
func TestEnrollRedundancy(t *testing.T) {
	for _, tt := range []struct {
		args               string
		replicas           int32
		surge, unavailable int32
	}{
		{"", 2, 1, 0},
		{"--replicas 1", 1, 1, 0},
		{"--replicas 7", 7, 1, 0},
		{"--host-network", 2, 0, 1}, // the port is the node's
	} {
		objects := decode(t, enrolled(t, "manifest", strings.Fields(tt.args)...))
		d, budget := object[*appsv1.Deployment](t, objects), object[*policyv1.PodDisruptionBudget](t, objects)
		update := d.Spec.Strategy.RollingUpdate
		if *d.Spec.Replicas != tt.replicas || update.MaxSurge.IntVal != tt.surge || update.MaxUnavailable.IntVal != tt.unavailable {
			t.Errorf("%s: got %d replicas, %+v", tt.args, *d.Spec.Replicas, update)
		}
		labels := d.Spec.Template.Labels
		if budget.Spec.MaxUnavailable.IntVal != 1 || !maps.Equal(budget.Spec.Selector.MatchLabels, labels) || *budget.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
			t.Errorf("got %+v", budget.Spec)
		}
		apart := d.Spec.Template.Spec.TopologySpreadConstraints
		if len(apart) != 1 || apart[0].TopologyKey != corev1.LabelHostname || apart[0].WhenUnsatisfiable != corev1.ScheduleAnyway || !maps.Equal(apart[0].LabelSelector.MatchLabels, labels) {
			t.Errorf("got %+v", apart)
		}
		env := d.Spec.Template.Spec.Containers[0].Env
		if last := env[len(env)-1]; last.Name != "CAUSEWAY_REPLICA" || last.ValueFrom.FieldRef.FieldPath != "metadata.name" {
			t.Errorf("got %+v", env)
		}
	}
}

func TestEnrollCountMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"--replicas 0":   "--replicas 0: want 1 to 256",
		"--replicas 257": "--replicas 257: want 1 to 256",
	} {
		argv := append([]string{"enroll", "default/prod", "--state", newState(t), "--format", "manifest", "--server", "a:1"}, strings.Fields(args)...)
		if err := run(t.Context(), argv, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}

// egress returns the ports that the NetworkPolicy allows, with those of a range.
func egress(t *testing.T, objects []runtime.Object) (ports []int32) {
	t.Helper()
	policy := object[*networkingv1.NetworkPolicy](t, objects)
	for _, rule := range policy.Spec.Egress {
		if len(rule.Ports) == 0 {
			ports = append(ports, 0)
		}
		for _, p := range rule.Ports {
			ports = append(ports, p.Port.IntVal)
			if p.EndPort != nil {
				ports = append(ports, *p.EndPort)
			}
		}
	}
	return ports
}

func TestEnrollPorts(t *testing.T) {
	for _, tt := range []struct {
		args string
		want []int32
	}{
		{"--server a:8443", []int32{8443}},
		{"--server a:443", nil},
		{"--server a:9443,b:8080,wss://c/x,wss://d:4443,ws://e,[fd00::1]:7443", []int32{80, 4443, 7443, 8080, 9443}},
		{"--server a:443 --proxy http://proxy:3128", []int32{3128}},
		{"--server a:443 --proxy https://proxy", nil},
		{"--server a:443 --proxy http://proxy", []int32{80}},
		{"--server a:443 --proxy socks5://[fd00::1]", []int32{1080}},
		{"--server a:443 --proxy direct", nil},
		{"--server a:443 --api-server 192.0.2.1:16443", []int32{16443}},
		{"--server a:443 --allow *.svc:9090,kubernetes.default.svc:443,10.0.0.0/8:22", []int32{22, 9090}},
		{"--server a:443 --allow 10.0.0.1:1-1024 --allow [fd00::/8]:22", []int32{1, 1024, 22}},
		{"--server a:9443 --allow 10.0.0.1:*,b:80", []int32{0}},
	} {
		args := append([]string{"enroll", "default/prod", "--state", newState(t), "--format", "manifest"}, strings.Fields(tt.args)...)
		var out strings.Builder
		if err := run(t.Context(), args, nil, &out, new(strings.Builder)); err != nil {
			t.Fatal(err)
		}
		want := append([]int32{53, 53, 443, 6443}, tt.want...)
		if got := egress(t, decode(t, out.String())); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", tt.args, got, want)
		}
	}
}

// A pod on its node's network needs no network plugin, no DNS and no Service of the
// cluster.
func TestEnrollHostNetwork(t *testing.T) {
	objects := decode(t, enrolled(t, "manifest", "--host-network"))
	if label := object[*corev1.Namespace](t, objects).Labels["pod-security.kubernetes.io/enforce"]; label != "privileged" {
		t.Errorf("got pod security %s", label)
	}
	for _, o := range objects {
		if _, ok := o.(*networkingv1.NetworkPolicy); ok {
			t.Error("got a NetworkPolicy, which would not apply")
		}
	}
	spec := object[*appsv1.Deployment](t, objects).Spec.Template.Spec
	want := []corev1.Toleration{
		{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists},
		{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists},
	}
	if diff := cmp.Diff(want, spec.Tolerations); diff != "" {
		t.Error(diff)
	}
	c := spec.Containers[0]
	if !spec.HostNetwork || spec.DNSPolicy != corev1.DNSDefault || c.LivenessProbe.HTTPGet.Host != "127.0.0.1" || c.ReadinessProbe.HTTPGet.Host != "127.0.0.1" {
		t.Errorf("got %+v", spec)
	}
	if p := c.Ports[0]; p.ContainerPort != 8081 || p.HostPort != 8081 || p.HostIP != "127.0.0.1" || !slices.Contains(c.Args, "--status=127.0.0.1:8081") {
		t.Errorf("got port %+v of %q", p, c.Args)
	}
	if !slices.Contains(c.Args, "--alias=kubernetes.default.svc:443=[$(KUBERNETES_SERVICE_HOST)]:$(KUBERNETES_SERVICE_PORT)") {
		t.Errorf("got %q, want an alias of the API server", c.Args)
	}
}

func TestEnrollAPIServer(t *testing.T) {
	for _, more := range [][]string{nil, {"--host-network"}} {
		objects := decode(t, enrolled(t, "manifest", append(more, "--api-server", "[fd00::1]:7443")...))
		c := object[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0]
		want := []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "fd00::1"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "7443"}}
		if diff := cmp.Diff(want, c.Env[:2]); diff != "" || !slices.Contains(c.Args, "--alias=kubernetes.default.svc:443=[fd00::1]:7443") {
			t.Errorf("%s in %q", diff, c.Args)
		}
	}
}

// With --allow, the API server is a target only if a pattern has it.
func TestEnrollAlias(t *testing.T) {
	for allow, want := range map[string]bool{"a:1": false, "kubernetes.default.svc:6443": false, "10.0.0.0/8:443": false, "*.other.svc:443": false,
		"a:1,kubernetes.default.svc:443": true, "*.svc:443": true, "*:443": true, "*.default.svc:1-1024": true, "*:*": true} {
		objects := decode(t, enrolled(t, "manifest", "--host-network", "--allow", allow))
		args := object[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0].Args
		if got := strings.Contains(strings.Join(args, " "), "--alias"); got != want {
			t.Errorf("%s: an alias: %t, want %t, in %q", allow, got, want, args)
		}
	}
}

const (
	proxyURL      = "http://us%20er:p%40'$(%22%60%5C);&*+canary@proxy.example:3128"
	proxyPassword = "p@'$(\"`\\);&*+canary"
)

// Each format leads the agent through the proxy; the password is where the token is.
func TestEnrollProxy(t *testing.T) {
	args := []string{"--proxy", proxyURL, "--no-proxy", "10.0.0.0/8,.corp.example", "--no-proxy", "192.0.2.7"}
	for format, file := range map[string]string{
		"env":      enrolled(t, "env", args...),
		"secret":   secretNamed(t, decode(t, enrolled(t, "secret", args...)), "tunnel-agent-invitation").StringData["invitation.env"],
		"manifest": secretNamed(t, decode(t, enrolled(t, "manifest", args...)), "tunnel-agent-invitation").StringData["invitation.env"],
		"systemd":  systemdFile(t, enrolled(t, "systemd", args...)),
		"command":  commandFile(t, enrolled(t, "command", args...)),
	} {
		checkInvitation(t, file)
		got := map[string]string{}
		for line := range strings.Lines(file) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			got[name] = value
		}
		u, err := dialer.ParseURL(got["CAUSEWAY_PROXY"])
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		password, _ := u.User.Password()
		if u.Host != "proxy.example:3128" || u.User.Username() != "us er" || password != proxyPassword || strings.ContainsAny(got["CAUSEWAY_PROXY"], "'$`\"\\;&*+() ") {
			t.Errorf("%s: got %q", format, got["CAUSEWAY_PROXY"])
		}
		rules := noproxy.Parse(got["CAUSEWAY_NO_PROXY"])
		for host, want := range map[string]bool{"kubernetes.default.svc:443": true, "tunnel-server.tunnel-server.svc:8443": true, "a.svc.cluster.local:1": true,
			"10.1.2.3:443": true, "a.corp.example:443": true, "192.0.2.7:1": true, "tunnel.example.com:443": false} {
			name, port, _ := net.SplitHostPort(host)
			if rules.Bypass(name, port) != want {
				t.Errorf("%s: direct to %s: %t, want %t, of %s", format, host, !want, want, got["CAUSEWAY_NO_PROXY"])
			}
		}
	}
}

// Nothing but the Secret, or the file of mode 0600, has the password.
func TestEnrollProxyHidden(t *testing.T) {
	args := []string{"--proxy", proxyURL}
	manifest := enrolled(t, "manifest", args...)
	documents := strings.Split(manifest, "---\n")
	for _, d := range documents[:len(documents)-1] {
		if strings.Contains(d, "canary") || strings.Contains(d, "proxy.example") {
			t.Errorf("got the proxy outside of the last Secret:\n%s", d)
		}
	}
	for line := range strings.Lines(enrolled(t, "systemd", args...)) {
		if strings.Contains(line, "canary") && !strings.HasPrefix(line, "#= ") {
			t.Errorf("got the password in the unit: %s", line)
		}
	}
	if _, command, _ := strings.Cut(enrolled(t, "command", args...), "causeway-agent"); strings.Contains(command, "canary") {
		t.Errorf("got the password in the arguments: %s", command)
	}
}

// systemdFile returns the lines of the invitation in the systemd format.
func systemdFile(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "#= "); ok {
			b.WriteString(rest)
		}
	}
	return b.String()
}

// commandFile returns the environment that a shell gives to the command. The shell has
// another proxy in its own, which counts less.
func commandFile(t *testing.T, line string) string {
	t.Helper()
	dir := t.TempDir()
	fake := "#!/bin/sh\nenv | grep ^CAUSEWAY_ >env\n"
	if err := os.WriteFile(filepath.Join(dir, "causeway-agent"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HTTPS_PROXY=http://127.0.0.1:1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the agent may reach is in its command line, in the formats that have one.
func TestEnrollAllow(t *testing.T) {
	const want = "--allow=*.svc:9090,10.0.0.1:1-1024"
	args := []string{"--allow", "*.svc:9090", "--allow", "10.0.0.1:1-1024"}
	if got := enrolled(t, "command", args...); !strings.HasSuffix(got, "--state ./agent-state --allow '*.svc:9090,10.0.0.1:1-1024'\n") {
		t.Errorf("got %q", got)
	}
	if got := enrolled(t, "systemd", args...); !strings.Contains(got, "--state /var/lib/tunnel-agent --allow *.svc:9090,10.0.0.1:1-1024\n") {
		t.Errorf("got %q", got)
	}
	c := object[*appsv1.Deployment](t, decode(t, enrolled(t, "manifest", args...))).Spec.Template.Spec.Containers[0]
	if !slices.Contains(c.Args, want) {
		t.Errorf("got %q, want %s", c.Args, want)
	}
}
