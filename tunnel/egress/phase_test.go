package egress_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/tunnel/egress"
)

var staticSidecar = egress.Sidecar{
	Image: "registry.example.com/causeway:1", Cluster: "default/prod",
	Gateway: "https://tunnel.example.com:3129", CredentialsPath: "/etc/kubernetes/causeway-egress",
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// set returns the manifest in a phase, in which it has to be found.
func set(t *testing.T, s egress.Sidecar, manifest string, to egress.Phase) string {
	t.Helper()
	got, err := s.SetPhase([]byte(manifest), to)
	if err != nil {
		t.Fatal(err)
	}
	if phase, err := egress.PhaseOf(got); phase != to || err != nil {
		t.Errorf("got the phase %q, %v; want %s", phase, err, to)
	}
	return string(got)
}

// kubeadm's manifest goes through all phases, and is the same file at the end.
func TestSetPhase(t *testing.T) {
	off := read(t, "kube-apiserver.yaml")
	beside := set(t, staticSidecar, off, egress.PhaseBeside)
	on := set(t, staticSidecar, beside, egress.PhaseOn)
	if diff := cmp.Diff(read(t, "kube-apiserver-on.yaml"), on); diff != "" {
		t.Errorf("on: (-want +got)\n%s", diff)
	}
	flag := "    - --egress-selector-config-file=/run/causeway-egress/socket/egress.yaml\n"
	if got := strings.Replace(on, flag, "", 1); got != beside || got == on {
		t.Errorf("from beside to on, more than the flag has changed\n%s", cmp.Diff(beside, on))
	}
	if again := set(t, staticSidecar, on, egress.PhaseOn); again != on {
		t.Errorf("on twice: (-want +got)\n%s", cmp.Diff(on, again))
	}
	if back := set(t, staticSidecar, on, egress.PhaseBeside); back != beside {
		t.Errorf("back to beside: (-want +got)\n%s", cmp.Diff(beside, back))
	}
	if back := set(t, egress.Sidecar{}, on, egress.PhaseOff); back != off {
		t.Errorf("back to off: (-want +got)\n%s", cmp.Diff(off, back))
	}
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: prod-apiserver}
spec:
  template:
    spec:
      containers:
      - name: kube-apiserver # ours
        args: [--secure-port=6443]
        command: [kube-apiserver]
        unknown: 1.50
`

func TestSetPhaseDeployment(t *testing.T) {
	s := staticSidecar
	s.CredentialsPath, s.CredentialsSecret = "", "prod-tunnel-route"
	for _, tt := range []struct {
		name, security string
		user           int64
	}{
		{"root", "", 0},
		{"container", "        securityContext: {runAsUser: 1001}\n", 1001},
		{"pod", "      securityContext: {runAsUser: 1002, runAsNonRoot: true}\n", 1002},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := set(t, s, deployment+tt.security, egress.PhaseOn)
			var d struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			if err := yaml.Unmarshal([]byte(got), &d); err != nil {
				t.Fatal(err)
			}
			pod := d.Spec.Template.Spec
			security := pod.InitContainers[0].SecurityContext
			if *security.RunAsUser != tt.user || *security.RunAsNonRoot != (tt.user != 0) {
				t.Errorf("the sidecar runs as %d, non-root %t; want %d", *security.RunAsUser, *security.RunAsNonRoot, tt.user)
			}
			if pod.Volumes[0].EmptyDir == nil || pod.Volumes[1].Secret.SecretName != "prod-tunnel-route" {
				t.Errorf("got the volumes %+v", pod.Volumes)
			}
			if want := []string{"--secure-port=6443", "--egress-selector-config-file=/run/causeway-egress/socket/egress.yaml"}; !cmp.Equal(pod.Containers[0].Args, want) {
				t.Errorf("got the arguments %q, want %q", pod.Containers[0].Args, want)
			}
			for _, kept := range []string{"# ours", "unknown: 1.50"} {
				if !strings.Contains(got, kept) {
					t.Errorf("%q is lost in\n%s", kept, got)
				}
			}
		})
	}
}

func TestSetPhaseErrors(t *testing.T) {
	off := read(t, "kube-apiserver.yaml")
	other := strings.Replace(off, "    - --allow-privileged=true\n", "    - --egress-selector-config-file=/etc/konnectivity.yaml\n", 1)
	for _, tt := range []struct {
		name, manifest, want string
		change               func(*egress.Sidecar)
	}{
		{"konnectivity", other, "--egress-selector-config-file=/etc/konnectivity.yaml already", nil},
		{"script", strings.Replace(off, "    - kube-apiserver\n", "    - /bin/sh\n    - -c\n", 1), `begins with "/bin/sh"`, nil},
		{"no kind", "a: b", "has no kind", nil},
		{"another kind", "kind: Service", "a Service", nil},
		{"another pod", strings.ReplaceAll(off, "name: kube-apiserver", "name: etcd"), "no container kube-apiserver", nil},
		{"two documents", off + "---\n" + off, "several YAML documents", nil},
		{"not root, but who", strings.Replace(off, "    seccompProfile:", "    runAsNonRoot: true\n    seccompProfile:", 1), "runAsUser", nil},
		{"no image", off, "Sidecar.Image", func(s *egress.Sidecar) { s.Image = "" }},
		{"no cluster", off, "Sidecar.Cluster", func(s *egress.Sidecar) { s.Cluster = "" }},
		{"password", off, "user info", func(s *egress.Sidecar) { s.Gateway = "http://u:s3cr3t@h:1" }},
		{"socks5", off, "http://host:port", func(s *egress.Sidecar) { s.Gateway = "socks5://h:1" }},
		{"two sources", off, "exactly one", func(s *egress.Sidecar) { s.TokenAudience = "x" }},
		{"no source", off, "exactly one", func(s *egress.Sidecar) { s.CredentialsPath = "" }},
		{"relative", off, "absolute", func(s *egress.Sidecar) { s.Dir = "run" }},
		{"root", off, "is the root", func(s *egress.Sidecar) { s.Dir = "/" }},
		{"long", off, "too long", func(s *egress.Sidecar) { s.Dir = "/" + strings.Repeat("d", 90) }},
		{"an image that is a variable", off, "Sidecar.Image is no image", func(s *egress.Sidecar) { s.Image = "$(HOME)" }},
		{"space", off, "Sidecar.Image has a space", func(s *egress.Sidecar) { s.Image = "a b" }},
		{"bytes that are not UTF-8", off, "Sidecar.Cluster has bytes that are not UTF-8", func(s *egress.Sidecar) { s.Cluster = "a\x9bb" }},
		{"a variable", off, "Sidecar.Dir has $(", func(s *egress.Sidecar) { s.Dir = "/run/$(HOME)" }},
		{"user", off, "Sidecar.User", func(s *egress.Sidecar) { s.User = -1 }},
		{"a gateway with a path", off, "more than a host and a port", func(s *egress.Sidecar) { s.Gateway = "http://h:1/path" }},
		{"a gateway with a line feed", off, "Sidecar.Gateway", func(s *egress.Sidecar) { s.Gateway = "http://h:1\n" }},
		{"a user that is no number", strings.Replace(off, "    seccompProfile:", "    runAsUser: root\n    seccompProfile:", 1), "runAsUser is no number", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := staticSidecar
			if tt.change != nil {
				tt.change(&s)
			}
			got, err := s.SetPhase([]byte(tt.manifest), egress.PhaseBeside)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("got %q, %v; want an error with %q", got, err, tt.want)
			}
		})
	}
	dollars := staticSidecar
	dollars.Cluster = "$(HOME)"
	if got := set(t, dollars, off, egress.PhaseBeside); !strings.Contains(got, "- $$(HOME)\n") {
		t.Errorf("the kubelet replaces a name of a cluster:\n%s", got)
	}
	if _, err := staticSidecar.SetPhase([]byte(off), "half"); err == nil {
		t.Error("got no error for the phase half")
	}
	for _, manifest := range []string{"a: [", "kind: Service"} {
		if phase, err := egress.PhaseOf([]byte(manifest)); err == nil {
			t.Errorf("%s: got the phase %q, want an error", manifest, phase)
		}
	}
	// Off is the way out, whatever else there is.
	if got := set(t, egress.Sidecar{}, other, egress.PhaseOff); got != other {
		t.Errorf("(-want +got)\n%s", cmp.Diff(other, got))
	}
}

// What kubeadm makes of the patches is what SetPhase makes of the manifest.
func TestPatches(t *testing.T) {
	for _, phase := range egress.Phases() {
		t.Run(string(phase), func(t *testing.T) {
			var config struct {
				Files             []struct{ Path, Content string }
				InitConfiguration struct{ Patches struct{ Directory string } }
			}
			unmarshal(t, &config)(staticSidecar.KubeadmConfig(phase))
			if want := map[egress.Phase]int{egress.PhaseBeside: 1, egress.PhaseOn: 2}[phase]; len(config.Files) != want {
				t.Fatalf("got %+v, want %d patches", config, want)
			}
			patched, err := toJSON(t, read(t, "kube-apiserver.yaml")), error(nil)
			if len(config.Files) > 0 {
				if patched, err = strategicpatch.StrategicMergePatch(patched, toJSON(t, config.Files[0].Content), corev1.Pod{}); err != nil {
					t.Fatal(err)
				}
				if dir := config.InitConfiguration.Patches.Directory; filepath.Dir(config.Files[0].Path) != dir {
					t.Errorf("the files are not in %q", dir)
				}
			}
			if len(config.Files) > 1 {
				patch, err := jsonpatch.DecodePatch(toJSON(t, config.Files[1].Content))
				if err != nil {
					t.Fatal(err)
				}
				if patched, err = patch.Apply(patched); err != nil {
					t.Fatal(err)
				}
			}
			var got, want corev1.Pod
			for from, to := range map[string]*corev1.Pod{string(patched): &got, set(t, staticSidecar, read(t, "kube-apiserver.yaml"), phase): &want} {
				if err := yaml.UnmarshalStrict([]byte(from), to); err != nil {
					t.Fatal(err)
				}
				byName := map[string]corev1.Volume{}
				for _, v := range to.Spec.Volumes {
					byName[v.Name] = v
				}
				mounts := map[string]corev1.VolumeMount{}
				for _, m := range to.Spec.Containers[0].VolumeMounts {
					mounts[m.Name] = m
				}
				if len(byName) != len(to.Spec.Volumes) {
					t.Errorf("a volume is there twice: %+v", to.Spec.Volumes)
				}
				to.Spec.Volumes, to.Spec.Containers[0].VolumeMounts = nil, nil
				for _, name := range []string{"ca-certs", "causeway-egress-socket", "causeway-egress-credentials"} { // in one order
					to.Spec.Volumes = append(to.Spec.Volumes, byName[name])
					to.Spec.Containers[0].VolumeMounts = append(to.Spec.Containers[0].VolumeMounts, mounts[name])
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-SetPhase +patches)\n%s", diff)
			}
		})
	}
}

func toJSON(t *testing.T, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unmarshal returns a function that takes YAML and an error.
func unmarshal(t *testing.T, into any) func(text []byte, err error) {
	return func(text []byte, err error) {
		t.Helper()
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestConfigurationErrors(t *testing.T) {
	for _, socket := range []string{"", "egress.sock", "unix:///run/egress.sock", "/run/", "/run/a\x00b"} {
		if text, err := egress.Configuration(socket); err == nil {
			t.Errorf("%q: got %s, want an error", socket, text)
		}
	}
}
