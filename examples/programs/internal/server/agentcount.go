package server

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

const (
	defaultReplicas = 2
	maxReplicas     = 256
)

// countFlags are the flags of enroll that say how many pods a manifest has.
type countFlags struct {
	replicas      int
	nodesPerAgent int // 0: the count does not follow the nodes
	maxReplicas   int // 0: no limit but maxReplicas
}

func (f *countFlags) addFlags(set *pflag.FlagSet) {
	set.IntVar(&f.replicas, "replicas", defaultReplicas, "`number` of pods in a manifest; with --nodes-per-agent, the fewest")
	set.IntVar(&f.nodesPerAgent, "nodes-per-agent", 0, "`number` of nodes for each pod of a manifest: the count of pods follows that of nodes; 0: it does not")
	set.IntVar(&f.maxReplicas, "max-replicas", 0, fmt.Sprintf("`number` of pods at most, with --nodes-per-agent; default %d", maxReplicas))
}

func (f countFlags) check() error {
	switch {
	case f.replicas < 1 || f.replicas > maxReplicas:
		return cli.Mistake("--replicas %d: want 1 to %d", f.replicas, maxReplicas)
	case f.nodesPerAgent < 0:
		return cli.Mistake("--nodes-per-agent %d is less than zero", f.nodesPerAgent)
	case f.maxReplicas != 0 && f.nodesPerAgent == 0:
		return cli.Mistake("--max-replicas is for --nodes-per-agent, which is missing")
	case f.maxReplicas != 0 && (f.maxReplicas < f.replicas || f.maxReplicas > maxReplicas):
		return cli.Mistake("--max-replicas %d: want %d (--replicas) to %d", f.maxReplicas, f.replicas, maxReplicas)
	}
	return nil
}

// setCount sets the number of pods. If it follows the nodes, the manifest has none, so
// that applying it again does not change it.
func (b *baseText) setCount(c podConfig) {
	line := fmt.Sprintf("  replicas: %d\n", c.count.replicas)
	if c.count.nodesPerAgent > 0 {
		line = "  # tunnel-agent-autoscaler sets the replicas.\n"
	}
	b.replace(fmt.Sprintf("  replicas: %d\n", defaultReplicas), line)
}

// Autoscaling is the entry "linear" of the autoscaler's ConfigMap.
func (d agentConfig) Autoscaling() string {
	c := d.Pod.count
	most := c.maxReplicas
	if most == 0 {
		most = maxReplicas
	}
	return fmt.Sprintf(`{"nodesPerReplica": %d, "min": %d, "max": %d, "preventSinglePointFailure": true, "includeUnschedulableNodes": true}`,
		c.nodesPerAgent, c.replicas, most)
}

// APIVariables are the autoscaler's; "" if it uses the API server's Service.
func (d agentConfig) APIVariables() (string, error) {
	if d.Pod.host == "" {
		return "", nil
	}
	variables, err := d.Pod.apiVariables()
	return "        env:\n" + variables, err
}

// APIPorts are the ports of the API server beside 443 and 6443, in a NetworkPolicy.
func (d agentConfig) APIPorts() string {
	if d.Pod.port == 0 || d.Pod.port == 443 || d.Pod.port == 6443 {
		return ""
	}
	return fmt.Sprintf("    - port: %d\n      protocol: TCP\n", d.Pod.port)
}

// autoscalerText has the replicas of the agent follow the number of nodes. Nodes that are
// cordoned count, so that a drain does not end agents.
const autoscalerText = `# The number of the agent's pods follows that of the cluster's nodes, by
# kubernetes-sigs/cluster-proportional-autoscaler.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: tunnel-agent-autoscaler
  namespace: {{.Namespace}}
automountServiceAccountToken: false
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: tunnel-agent-autoscaler
  namespace: {{.Namespace}}
data:
  linear: '{{.Autoscaling}}'
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: tunnel-agent-autoscaler
  namespace: {{.Namespace}}
rules:
- apiGroups: [apps]
  resources: [deployments/scale]
  resourceNames: [tunnel-agent]
  verbs: [get, update]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [tunnel-agent-autoscaler]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: tunnel-agent-autoscaler
  namespace: {{.Namespace}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: tunnel-agent-autoscaler
subjects:
- kind: ServiceAccount
  name: tunnel-agent-autoscaler
  namespace: {{.Namespace}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{.Namespace}}:tunnel-agent-autoscaler
rules:
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{.Namespace}}:tunnel-agent-autoscaler
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{.Namespace}}:tunnel-agent-autoscaler
subjects:
- kind: ServiceAccount
  name: tunnel-agent-autoscaler
  namespace: {{.Namespace}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: tunnel-agent-autoscaler
  namespace: {{.Namespace}}
  labels:
    app.kubernetes.io/name: tunnel-agent-autoscaler
spec:
  replicas: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: tunnel-agent-autoscaler
  template:
    metadata:
      labels:
        app.kubernetes.io/name: tunnel-agent-autoscaler
    spec:
      serviceAccountName: tunnel-agent-autoscaler
      automountServiceAccountToken: true
      enableServiceLinks: false
{{.Pod.Tolerations}}      securityContext:
        runAsNonRoot: true
        runAsUser: 65535
        runAsGroup: 65535
        seccompProfile:
          type: RuntimeDefault
      containers:
      - name: autoscaler
        image: registry.k8s.io/cpa/cluster-proportional-autoscaler:v1.10.3
        command:
        - /cluster-proportional-autoscaler
        - --namespace={{.Namespace}}
        - --configmap=tunnel-agent-autoscaler
        - --target=deployment/tunnel-agent
        - --logtostderr=true
{{.APIVariables}}        livenessProbe:
          httpGet:
            path: /healthz
            port: 8080
        resources:
          requests:
            cpu: 10m
            memory: 32Mi
          limits:
            memory: 256Mi
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: tunnel-agent-autoscaler
  namespace: {{.Namespace}}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: tunnel-agent-autoscaler
  policyTypes: [Ingress, Egress]
  egress:
  - ports:
    - port: 443
      protocol: TCP
    - port: 6443
      protocol: TCP
{{.APIPorts}}---
`
