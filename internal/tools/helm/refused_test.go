package helm

import (
	"strings"
	"testing"
)

// TestRefused: a wrong value is an error that names it and says what to do.
func TestRefused(t *testing.T) {
	const server = "part: tunnel-server\n" + imageValue
	for _, row := range []struct{ name, namespace, values, want string }{
		{"no part", "tunnel-server", imageValue, "part: required: what this release is, one of kubeconfig-provider, monitoring, proxy-injector, proxy-propagator, tunnel-agent, tunnel-server. For example: --set part=tunnel-server"},
		{"an unknown part", "tunnel-server", "part: server\n", `part: got "server", want one of kubeconfig-provider`},
		{"another namespace", "default", server, `the namespace is "default": install tunnel-server with --namespace tunnel-server --create-namespace`},
		{"no image", "tunnel-agent", "part: tunnel-agent\n" + secretValue, "image: required, since this chart is no release's: where the image of causeway-agent is. For example: --set image=registry.example.com/causeway-agent:1"},
		{"no invitation", "tunnel-agent", "part: tunnel-agent\n" + imageValue, "invitation: required: \"causeway enroll CLUSTER --format env >invitation.env\" prints it"},
		{"a path as invitation", "tunnel-agent", "part: tunnel-agent\ninvitation: invitation.env\n" + imageValue, "--set-file invitation=invitation.env"},
		{"two invitations", "tunnel-agent", "part: tunnel-agent\ninvitation: CAUSEWAY_TOKEN=a\n" + secretValue + imageValue, "invitation and invitationSecret: want one of them"},
		{"an invitation of the server", "tunnel-server", server + secretValue, "invitation and invitationSecret: for the part tunnel-agent, and not for tunnel-server"},
		{"a typo", "tunnel-server", server + "replica: 3\n", "additional properties 'replica' not allowed"},
		{"a typo below", "tunnel-server", server + "service: {kind: NodePort}\n", "at '/service': additional properties 'kind' not allowed"},
		{"text for a number", "tunnel-server", server + "replicas: three\n", "at '/replicas': got string, want integer"},
		{"too many pods", "tunnel-server", server + "replicas: 99999999999\n", "want 1,000"},
		{"a URL as image", "tunnel-server", "part: tunnel-server\nimage: https://registry.example.com/causeway:1\n", `image: "https://registry.example.com/causeway:1" is no image: want REGISTRY/NAME:TAG, without https://`},
		{"an image in upper case", "tunnel-server", "part: tunnel-server\nimage: registry.example.com/Causeway\n", "is no image"},
		{"an invitation without token", "tunnel-agent", "part: tunnel-agent\ninvitation: CAUSEWAY_TOKEN=\n" + imageValue, "--set-file invitation=invitation.env"},
		{"no name of a Secret", "tunnel-agent", "part: tunnel-agent\ninvitationSecret: Bad_Name\n" + imageValue, `invitationSecret: "Bad_Name" is no name of a Secret`},
		{"half a certificate", "proxy-injector", "part: proxy-injector\nwebhook: {caBundle: '-----BEGIN CERTIFICATE-----'}\n" + imageValue, "webhook.caBundle: want a certificate in PEM"},
		{"no pods", "tunnel-server", server + "replicas: 0\n", "at '/replicas': minimum: got 0, want 1"},
		{"a number for text", "tunnel-server", server + "env: [{name: A, value: 1}]\n", "at '/env/0/value': got number, want string"},
		{"no quantity", "tunnel-server", server + "resources: {limits: {memory: 1Gib}}\n", "at '/resources/limits/memory': '1Gib' does not match pattern"},
		{"text for a list", "tunnel-server", server + "args: --grace=5m\n", "at '/args': got string, want array"},
		{"an unknown component", "tunnel-server", server + "components: [tokens]\n", `components: got "tokens", want some of cluster-agents, monitoring, pod-secrets, route-admission, token-review`},
		{"another part's component", "tunnel-server", server + "components: [pod-secrets]\n", "components: pod-secrets is not for the part tunnel-server"},
		{"another part's Service", "tunnel-agent", "part: tunnel-agent\nservice: {type: NodePort}\n" + secretValue + imageValue, "service: for the part tunnel-server, and not for tunnel-agent"},
		{"ports that nothing closes", "kubeconfig-provider", "part: kubeconfig-provider\negressPorts: [1]\n" + imageValue, "egressPorts: not for the part kubeconfig-provider"},
		{"no webhook", "kubeconfig-provider", "part: kubeconfig-provider\nwebhook: {annotations: {a: b}}\n" + imageValue, "webhook: for the part proxy-injector, and for kubeconfig-provider with the component route-admission"},
		{"no certificate", "proxy-injector", "part: proxy-injector\nwebhook: {caBundle: ca.crt}\n" + imageValue, "webhook.caBundle: want a certificate in PEM: --set-file webhook.caBundle=ca.crt"},
		{"pods of monitoring", "causeway-monitoring", "part: monitoring\n" + imageValue, "image: not for the part monitoring"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if out, err := runHelm(t, []string{"template", "test"}, row.namespace, row.values); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q\n%s", err, row.want, out)
			}
		})
	}
}

// TestTaken: what the programs read, the chart takes.
func TestTaken(t *testing.T) {
	for _, row := range []struct{ name, part, values string }{
		{"an invitation for a shell", "tunnel-agent", "invitation: export CAUSEWAY_TOKEN=causeway1.a\n"},
		{"a certificate of Windows", "proxy-injector", `webhook: {caBundle: "-----BEGIN CERTIFICATE-----\r\nAAAA\r\n-----END CERTIFICATE-----\r\n"}` + "\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if _, err := runHelm(t, []string{"template", "test"}, row.part, "part: "+row.part+"\n"+row.values+imageValue); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNull: null is the default of each value.
func TestNull(t *testing.T) {
	values := "part: tunnel-server\n" + imageValue
	for _, name := range []string{"components", "imagePullSecrets", "resources", "args", "env", "volumes", "volumeMounts", "nodeSelector",
		"tolerations", "egressPorts", "service", "webhook", "invitation", "invitationSecret"} {
		values += name + ": null\n"
	}
	for _, command := range []string{"template", "install"} { // install shows the notes
		args := []string{command, "test"}
		if command == "install" {
			args = append(args, "--dry-run=client")
		}
		if _, err := runHelm(t, args, "tunnel-server", values); err != nil {
			t.Error(err)
		}
	}
}
