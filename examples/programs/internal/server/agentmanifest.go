package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/deploy"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/internal/yamledit"
	"github.com/causewayproject/causeway/tunnel"
)

// podFlags are the flags of enroll that say where the pod of a manifest runs.
type podFlags struct {
	hostNetwork           bool
	apiServer, host, port string // "": its Service
	replicas              int
}

const (
	defaultReplicas = 2
	maxReplicas     = 256
)

func (f *podFlags) addFlags(set *pflag.FlagSet) {
	set.BoolVar(&f.hostNetwork, "host-network", false, "have the pod of a manifest on its node's network, before there is a network plugin")
	set.StringVar(&f.apiServer, "api-server", "", "`address` host:port of the cluster's API server, in a manifest; default: its Service")
	set.IntVar(&f.replicas, "replicas", defaultReplicas, "`number` of pods in a manifest")
}

// check reads the flags.
func (f *podFlags) check() error {
	if f.replicas < 1 || f.replicas > maxReplicas {
		return cli.Mistake("--replicas %d: want 1 to %d", f.replicas, maxReplicas)
	}
	if f.apiServer == "" {
		return nil
	}
	if hostport.CheckAddress(f.apiServer) != nil {
		return cli.Mistake("--api-server %q is not HOST:PORT", f.apiServer)
	}
	f.host, f.port, _ = net.SplitHostPort(f.apiServer) // as CheckAddress has
	return nil
}

// renderManifest writes the base of the agent, changed to what the flags say, and the
// Secret.
func renderManifest(w io.Writer, d agentConfig) error {
	b := &baseText{text: deploy.Agent()}
	if d.Pod.hostNetwork {
		b.useHostNetwork()
	} else {
		b.replace("    - port: 8443\n      protocol: TCP\n", portLines(d))
	}
	b.addPod(d)
	b.replace(fmt.Sprintf("  replicas: %d\n", defaultReplicas), fmt.Sprintf("  replicas: %d\n", d.Pod.replicas))
	b.replace("image: causeway-agent:dev\n", "image: "+b.quoted("--image", d.Image)+"\n")
	namespace := b.quoted("--namespace", d.Namespace)
	b.replace("kind: Namespace\nmetadata:\n  name: tunnel-agent\n", "kind: Namespace\nmetadata:\n  name: "+namespace+"\n")
	b.text = strings.ReplaceAll(b.text, "  namespace: tunnel-agent\n", "  namespace: "+namespace+"\n")
	secret := secretText
	if d.Audience != "" {
		b.useJoin(d)
		secret = configText
	}
	if b.err != nil {
		return b.err
	}
	if _, err := io.WriteString(w, b.text+"---\n"); err != nil {
		return err
	}
	return renderTemplate(secret)(w, d)
}

// baseText is the base while it is changed.
type baseText struct {
	text string
	err  error // the first
}

// replace replaces what is there once.
func (b *baseText) replace(before, after string) {
	if n := strings.Count(b.text, before); n != 1 && b.err == nil {
		b.err = fmt.Errorf("the base of the agent has %q %d times, and not once", before, n)
	}
	b.text = strings.Replace(b.text, before, after, 1)
}

// quoted returns a text of a flag as YAML.
func (b *baseText) quoted(flag, text string) string {
	text, err := yamledit.Quote(text)
	if err != nil && b.err == nil {
		b.err = cli.Mistake("%s %v", flag, err)
	}
	return text
}

// hostStatus is where an agent on its node's network has its status.
const hostStatus = "8081"

// useHostNetwork has the pod on its node's network: its port is the node's, so that
// only the node's loopback has it. A node has room for one such pod, also during an
// update.
func (b *baseText) useHostNetwork() {
	b.replace("    pod-security.kubernetes.io/enforce: restricted\n", "    pod-security.kubernetes.io/enforce: privileged # hostNetwork\n")
	b.replace("      serviceAccountName: tunnel-agent\n", "      serviceAccountName: tunnel-agent\n      hostNetwork: true\n      dnsPolicy: Default # the node's: there may be no DNS in the cluster yet\n")
	b.replace("      enableServiceLinks: false\n", `      enableServiceLinks: false
      tolerations:
      - key: node.kubernetes.io/not-ready # which a node without a network plugin is
        operator: Exists
      - key: node-role.kubernetes.io/control-plane
        operator: Exists
`)
	b.replace("        - --status=:8080\n", "        - --status=127.0.0.1:"+hostStatus+"\n")
	b.replace("          containerPort: 8080\n", "          containerPort: "+hostStatus+"\n          hostPort: "+hostStatus+"\n          hostIP: 127.0.0.1\n")
	for _, path := range []string{"/healthz", "/readyz"} {
		b.replace("            path: "+path+"\n", "            host: 127.0.0.1\n            path: "+path+"\n")
	}
	b.replace("      maxSurge: 1\n      maxUnavailable: 0\n", "      maxSurge: 0 # a port of the node is free when the old pod has ended\n      maxUnavailable: 1\n")
	rest, _, found := strings.Cut(b.text, "---\n# Nobody connects")
	if !found && b.err == nil {
		b.err = fmt.Errorf("the base of the agent has no NetworkPolicy")
	}
	b.text = rest + "# There is no NetworkPolicy: none applies to a pod on its node's network. What the\n# agent may connect to is for the node's firewall.\n"
}

// addPod adds arguments and variables.
func (b *baseText) addPod(d agentConfig) {
	args, env := "", ""
	if patterns := d.Patterns(); patterns != "" {
		args += "        - " + b.quoted("--allow", "--allow="+quote.Container(patterns)) + "\n"
	}
	address := ""
	switch {
	case d.Pod.host != "":
		address = quote.Container(net.JoinHostPort(d.Pod.host, d.Pod.port))
		env = fmt.Sprintf("        - name: KUBERNETES_SERVICE_HOST\n          value: %s\n        - name: KUBERNETES_SERVICE_PORT\n          value: %s\n",
			b.quoted("--api-server", quote.Container(d.Pod.host)), b.quoted("--api-server", d.Pod.port))
	case d.Pod.hostNetwork: // the node's DNS does not know the name
		address = "[$(KUBERNETES_SERVICE_HOST)]:$(KUBERNETES_SERVICE_PORT)"
	}
	// An alias allows its target.
	if address != "" && (len(d.Allow) == 0 || slices.ContainsFunc(d.Allow, targetPattern.coversAPI)) {
		args += "        - " + b.quoted("--api-server", "--alias="+apiTarget+":443="+address) + "\n"
	}
	const before = "        env:\n"
	b.replace(before, args+before+env)
}

// portLines are the ports of the NetworkPolicy beside those of DNS and of the API
// server that the base names.
func portLines(d agentConfig) string {
	ports := []targetPattern{{from: d.Proxy.port, to: d.Proxy.port}}
	texts := []string{d.Pod.port}
	for _, address := range d.Invitation.Servers {
		_, text, _ := net.SplitHostPort(address)
		if u, err := url.Parse(address); err == nil && strings.Contains(address, "://") {
			text = cmp.Or(u.Port(), map[string]string{"ws": "80", "wss": "443"}[u.Scheme])
		}
		texts = append(texts, text)
	}
	for _, text := range texts {
		port, _ := strconv.Atoi(text) // enroll has checked it
		ports = append(ports, targetPattern{from: port, to: port})
	}
	ports = slices.DeleteFunc(ports, func(p targetPattern) bool { return p.from == 0 })
	for _, p := range d.Allow {
		if p.from == 0 {
			return "  - {} # --allow has a pattern of all ports\n"
		}
		ports = append(ports, targetPattern{from: p.from, to: p.to})
	}
	slices.SortFunc(ports, func(a, b targetPattern) int { return (a.from-b.from)<<16 + a.to - b.to })
	text := ""
	for _, p := range slices.Compact(ports) {
		switch {
		case p.from != p.to:
			text += fmt.Sprintf("    - port: %d\n      endPort: %d\n      protocol: TCP\n", p.from, p.to)
		case !slices.Contains([]int{53, 443, 6443}, p.from):
			text += fmt.Sprintf("    - port: %d\n      protocol: TCP\n", p.from)
		}
	}
	return text
}

// printJoin prints the manifest of an agent that joins.
func (e *enrollment) printJoin(ctx context.Context, st *state, server *tunnel.Server, cluster string, stdout io.Writer) (err error) {
	r, err := readJoin(ctx, st, cluster)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cluster %q is not registered, so that no agent of it can join: causeway join add comes first", cluster)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.state, err)
	}
	subject := "system:serviceaccount:" + e.agent.Namespace + ":tunnel-agent"
	if !slices.Contains(r.Subjects, subject) {
		return fmt.Errorf("the agent would be %s, which is none of the subjects of cluster %q: set --namespace, or add the cluster again with --subject", subject, cluster)
	}
	e.agent.Invitation = tunnel.Invitation{Servers: e.servers, Cluster: cluster, Pin: server.Authority.Pin()}
	e.agent.Audience = r.Audience
	return formats[e.format](stdout, e.agent)
}

// joinNote stands at the top instead of the note about the Secrets.
const joinNote = `# tunnel-agent in a workload cluster. Nothing here is secret: the agent joins with the
# token of its ServiceAccount, which the kubelet makes for it. Each pod has credentials of
# its own, in memory, so that there may be any number of pods; a new pod joins anew. The
# server has to know the cluster: causeway join add.
#
# The agent has no rights in the cluster. What clients may do there is theirs.
`

// useJoin has the agent join: without a Secret, and without rights.
func (b *baseText) useJoin(d agentConfig) {
	b.dropObject("kind: Secret\nmetadata:\n  name: tunnel-agent-state\n")
	b.dropObject("\nkind: Role\nmetadata:")
	b.dropObject("\nkind: RoleBinding\nmetadata:")
	if i := strings.Index(b.text, "apiVersion:"); i >= 0 {
		b.text = joinNote + b.text[i:]
	}
	b.replace("      automountServiceAccountToken: true\n", "      automountServiceAccountToken: false\n")
	b.replace("        - --secret=tunnel-agent-state\n", "        - --join-token=/var/run/secrets/tunnel-agent/token\n        - --state=/var/lib/tunnel-agent\n")
	b.replace("          mountPath: /etc/tunnel-agent\n          readOnly: true\n", `          mountPath: /etc/tunnel-agent
          readOnly: true
        - name: token
          mountPath: /var/run/secrets/tunnel-agent
          readOnly: true
        - name: state
          mountPath: /var/lib/tunnel-agent
`)
	b.replace("        secret:\n          secretName: tunnel-agent-invitation\n          defaultMode: 0440\n", fmt.Sprintf(`        configMap:
          name: tunnel-agent-invitation
      - name: token
        projected:
          defaultMode: 0440
          sources:
          - serviceAccountToken:
              path: token
              audience: %s
              expirationSeconds: 600
      - name: state # survives a crash of the agent, and ends with the pod
        emptyDir:
          medium: Memory
          sizeLimit: 1Mi
`, b.quoted("the audience of the cluster", d.Audience)))
}

// configText has the invitation without a token.
var configText = strings.NewReplacer("kind: Secret\n", "kind: ConfigMap\n", "stringData:\n", "data:\n").Replace(secretText)

// dropObject removes the one object with the text.
func (b *baseText) dropObject(with string) {
	objects := strings.Split(b.text, "\n---\n")
	kept := slices.DeleteFunc(slices.Clone(objects), func(o string) bool { return strings.Contains(o, with) })
	if len(kept) != len(objects)-1 && b.err == nil {
		b.err = fmt.Errorf("the base of the agent has %q in %d objects, and not in one", with, len(objects)-len(kept))
	}
	b.text = strings.Join(kept, "\n---\n")
}
