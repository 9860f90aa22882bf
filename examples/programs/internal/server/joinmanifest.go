package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/causewayproject/causeway/tunnel"
)

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
