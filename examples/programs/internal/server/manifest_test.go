package server

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

func parse(f *serveFlags, args ...string) error {
	set := pflag.NewFlagSet("server", pflag.ContinueOnError)
	f.add(set)
	return errors.Join(set.Parse(args), cli.ReadVariables(set, "server", io.Discard), f.check())
}

// The flags of the deployment are flags, its variables too, and its Services are
// those that they name; what ends a pod leaves it the time that it takes.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/tunnel-server/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.PodSpec
	services := map[string]*corev1.Service{}
	for _, object := range decode(t, strings.ReplaceAll(string(text), "\n---\n", "---\n")) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			pod = o.Spec.Template.Spec
		case *corev1.Service:
			services[o.Name] = o
		}
	}
	c := pod.Containers[0]
	for _, v := range c.Env {
		if v.Value != "" {
			t.Setenv(v.Name, v.Value)
		}
	}
	var f serveFlags
	if err := parse(&f, c.Args[1:]...); err != nil {
		t.Fatal(err)
	}
	if len(f.doors.audiences) > 0 {
		t.Errorf("got the audiences %q without the component", f.doors.audiences)
	}
	need := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + f.grace + 10*time.Second
	if has := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; has < need {
		t.Errorf("got %v for the end, want %v", has, need)
	}
	if f.state.secrets != "$(POD_NAMESPACE)/tunnel" || f.grace == 0 {
		t.Errorf("got state %q, grace %v", f.state.secrets, f.grace)
	}
	peers := services[f.replicas.service]
	if peers == nil || !peers.Spec.PublishNotReadyAddresses || peers.Spec.ClusterIP != corev1.ClusterIPNone || len(peers.Spec.Ports) != 1 {
		t.Errorf("got Service %v for %s", peers, f.replicas.service)
	}
	host, _, _ := strings.Cut(os.Getenv("CAUSEWAY_SERVER_GATEWAY"), ".")
	gateway := services[strings.TrimPrefix(host, "http://")]
	if gateway == nil || !strings.HasSuffix(f.doors.connect, ":3128") || gateway.Spec.Ports[0].Port != 3128 {
		t.Errorf("got Service %v for %s", gateway, host)
	}
}

// The component's variable is a flag, which goes with those of the deployment, and
// its audience is the gateway's name.
func TestTokenReviewComponent(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/components/token-review/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var component struct {
		Patches []struct{ Patch string }
	}
	var patch []struct {
		Op, Path string
		Value    corev1.EnvVar
	}
	if err := yaml.Unmarshal(text, &component); err != nil || len(component.Patches) != 1 {
		t.Fatalf("got %+v, %v", component, err)
	}
	if err := yaml.UnmarshalStrict([]byte(component.Patches[0].Patch), &patch); err != nil || len(patch) != 1 {
		t.Fatalf("got %+v, %v", patch, err)
	}
	if patch[0].Op != "add" || patch[0].Path != "/spec/template/spec/containers/0/env/-" {
		t.Errorf("got %+v, want one more variable", patch[0])
	}
	t.Setenv(patch[0].Value.Name, patch[0].Value.Value)
	var f serveFlags
	if err := parse(&f, "--connect=:3128"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"tunnel-server-gateway.$(POD_NAMESPACE).svc"}; !slices.Equal(f.doors.audiences, want) {
		t.Errorf("got %q, want %q", f.doors.audiences, want)
	}
}
