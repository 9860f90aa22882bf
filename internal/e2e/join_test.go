package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
)

// kubernetesIssuer is what most clusters are called by their tokens.
const kubernetesIssuer = "https://kubernetes.default.svc.cluster.local"

// A joinBed has two clusters with real API servers and the same issuer. The tunnel's
// server, and all agents, are on the node of the first.
type joinBed struct {
	*programs
	a, b     *joinCluster
	server   *bed.Running
	address  string
	audience string
	pin      string
	agents   int
}

// A joinCluster has a pod of the agent.
type joinCluster struct {
	*bed.Cluster
	name    string // in the tunnel
	config  string // a kubeconfig file of its administrator
	clients *kubernetes.Clientset
	pod     *corev1.Pod
}

// TestJoin: agents join by tokens that real API servers have made for them.
func TestJoin(t *testing.T) {
	t.Parallel() // waits much
	j := newJoinBed(t)
	t.Run("pinned", j.testPinned)
	t.Run("refused", j.testRefused)
	t.Run("rotated", j.testRotated)
	t.Run("discovery", j.testDiscovery)
	t.Run("removed", j.testRemoved)
}

func newJoinBed(t *testing.T) *joinBed {
	j := &joinBed{programs: buildPrograms(t, sharedBed(t))}
	j.a, j.b = j.newCluster(t, "join-a", "--service-account-jwks-uri="+kubernetesIssuer+"/openid/v1/jwks"), j.newCluster(t, "join-b")
	j.address = net.JoinHostPort(j.a.Kube.Host(), tunnelPort)
	j.server = j.start(j.a.Node, bed.Command{Argv: []string{j.path("causeway"), "server", "--state", j.path("server"),
		"--listen", j.address, "--status", "", "--watch", "100ms"}})
	eventually(t, "the audience", func(ctx context.Context) error {
		out, err := j.a.Node.Run(ctx, bed.Command{Argv: []string{j.path("causeway"), "join", "list", "--state", j.path("server")}})
		if first, _, _ := strings.Cut(out, "\n"); err == nil {
			_, j.audience, _ = strings.Cut(first, "installation is ")
		}
		return err
	})
	env := j.run(t, j.a, "enroll", "join/any", "--server", j.address, "--format", "env")
	_, rest, _ := strings.Cut(env, "CAUSEWAY_PIN=")
	j.pin, _, _ = strings.Cut(rest, "\n")
	return j
}

func (j *joinBed) newCluster(t *testing.T, name string, args ...string) *joinCluster {
	t.Helper()
	c := &joinCluster{name: "join/" + name, config: j.path(name + ".conf")}
	var err error
	if c.Cluster, err = j.bed.StartCluster(t.Context(), name, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	config, err := kubeconfig.Spec{Name: name, CA: c.Kube.CA.CertPEM(), Credentials: kubeconfig.Credentials{CAKey: c.Kube.CA.KeyPEM()},
		Endpoint: kubeconfig.Endpoint{Host: c.Kube.Host(), Port: c.Kube.Port()}}.Build()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := kubeconfig.Secret(name, "default", config, nil)
	if err == nil {
		err = os.WriteFile(c.config, secret.Data[kubeconfig.SecretKey], 0o600)
	}
	if err == nil {
		c.clients, err = kubernetes.NewForConfig(c.Kube.Config())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"tunnel-agent", "other"} {
		if err := c.Kube.AddNamespace(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
		c.addAccount(t, namespace, "tunnel-agent")
	}
	c.addAccount(t, "tunnel-agent", "other")
	c.pod = c.addPod(t, "tunnel-agent", "tunnel-agent")
	return c
}

func (c *joinCluster) addAccount(t *testing.T, namespace, name string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.clients.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addPod makes a pod of a ServiceAccount, which is all that a token can be bound to.
func (c *joinCluster) addPod(t *testing.T, namespace, account string) *corev1.Pod {
	t.Helper()
	pod, err := c.clients.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// token has the API server make one for a pod, as the kubelet does.
func (c *joinCluster) token(t *testing.T, pod *corev1.Pod, seconds int64, audiences ...string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}}}
	made, err := c.clients.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

// run runs a command of causeway beside a cluster.
func (j *joinBed) run(t *testing.T, c *joinCluster, args ...string) string {
	t.Helper()
	argv := append([]string{j.path("causeway")}, append(args, "--state", j.path("server"))...)
	out, err := c.Node.Run(t.Context(), bed.Command{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// joining starts an agent with a token, and waits until it says want.
func (j *joinBed) joining(t *testing.T, cluster, token, want string) {
	t.Helper()
	j.agents++
	file := j.path(fmt.Sprintf("token-%d", j.agents))
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := j.start(j.a.Node, bed.Command{
		Argv: []string{j.path("causeway-agent"), "--state", j.path(fmt.Sprintf("agent-%d", j.agents)), "--status", "", "--join-token", file, "--server", j.address},
		Env:  []string{"CAUSEWAY_CLUSTER=" + cluster, "CAUSEWAY_PIN=" + j.pin}})
	defer agent.Stop()
	eventually(t, fmt.Sprintf("an agent to say %q, or the server for it", want), func(context.Context) error {
		log := agent.Stderr()
		if strings.Contains(log, want) || strings.Contains(log, "the server's log says why") && strings.Contains(j.server.Stderr(), want) {
			return nil
		}
		return fmt.Errorf("it says\n%s", log)
	})
	if log := agent.Stderr() + j.server.Stderr(); strings.Contains(log, token[strings.IndexByte(token, '.')+1:]) {
		t.Errorf("a log has the token:\n%s", log)
	}
}

// An agent joins by the keys that were read from its cluster, and no token but this is needed.
func (j *joinBed) testPinned(t *testing.T) {
	for _, c := range []*joinCluster{j.a, j.b} {
		if out := j.run(t, c, "join", "add", c.name, "--from", c.config); !strings.Contains(out, kubernetesIssuer) {
			t.Errorf("got %q", out)
		}
		j.joining(t, c.name, c.token(t, c.pod, 600, j.audience), "msg=connected server="+j.address+" cluster="+c.name)
	}
	// As a person makes one.
	out, err := j.a.Node.Run(t.Context(), j.bed.Kubectl(j.a.config, "create", "token", "tunnel-agent", "-n", "tunnel-agent", "--audience", j.audience,
		"--duration", "10m", "--bound-object-kind", "Pod", "--bound-object-name", j.a.pod.Name, "--bound-object-uid", string(j.a.pod.UID)))
	if err != nil {
		t.Fatal(err)
	}
	j.joining(t, j.a.name, strings.TrimSpace(out), "msg=connected")
}

// Each token is a real one, and is refused for what it is.
func (j *joinBed) testRefused(t *testing.T) {
	good := j.a.token(t, j.a.pod, 600, j.audience)
	j.joining(t, j.a.name, good, "msg=connected")
	unbound, err := j.a.clients.CoreV1().ServiceAccounts("tunnel-agent").CreateToken(t.Context(), "tunnel-agent",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{j.audience}, ExpirationSeconds: ptr.To[int64](600)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, cluster, token, want string }{
		{"replayed by another agent", j.a.name, good, "another agent has joined with the token"},
		{"of another cluster with the same issuer", j.a.name, j.b.token(t, j.b.pod, 600, j.audience), "no key of the name"},
		{"for another cluster", j.b.name, j.a.token(t, j.a.pod, 600, j.audience), "no key of the name"},
		{"for a cluster that is not registered", "join/none", j.a.token(t, j.a.pod, 600, j.audience), "is not registered"},
		{"by an agent that names no cluster", "", j.a.token(t, j.a.pod, 600, j.audience), "is not registered"},
		{"for the API server", j.a.name, j.a.token(t, j.a.pod, 600), "for another audience"},
		{"for another installation", j.a.name, j.a.token(t, j.a.pod, 600, "causeway:other"), "for another audience"},
		{"for two audiences", j.a.name, j.a.token(t, j.a.pod, 600, j.audience, "vault"), "for another audience"},
		{"of another ServiceAccount", j.a.name, j.a.token(t, j.a.addPod(t, "tunnel-agent", "other"), 600, j.audience), "of another ServiceAccount"},
		{"of another namespace", j.a.name, j.a.token(t, j.a.addPod(t, "other", "tunnel-agent"), 600, j.audience), "of another ServiceAccount"},
		{"that lives long", j.a.name, j.a.token(t, j.a.pod, 7200, j.audience), "lives for more than an hour"},
		{"that is bound to no pod", j.a.name, unbound.Status.Token, "is not bound to a pod"},
		{"of a Secret", j.a.name, j.a.legacyToken(t), "it is a legacy token"},
	} {
		t.Run(test.name, func(t *testing.T) { j.joining(t, test.cluster, test.token, test.want) })
	}
}

// legacyToken is one of the kind that has no end. The API server makes none by itself, but
// signs with the key in its folder.
func (c *joinCluster) legacyToken(t *testing.T) string {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(c.Dir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	return signToken(t, key, map[string]any{"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:tunnel-agent:tunnel-agent",
		"kubernetes.io/serviceaccount/namespace": "tunnel-agent", "kubernetes.io/serviceaccount/service-account.name": "tunnel-agent"})
}

// The API server gets another key: its tokens count once the cluster is added again, and
// those of the key before as well, since the API server still takes them.
func (j *joinBed) testRotated(t *testing.T) {
	former := j.a.token(t, j.a.pod, 600, j.audience)
	if err := j.a.Kube.RotateTokenKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.joining(t, j.a.name, j.a.token(t, j.a.pod, 600, j.audience), "no key of the name")
	j.run(t, j.a, "join", "add", j.a.name, "--from", j.a.config)
	j.joining(t, j.a.name, j.a.token(t, j.a.pod, 600, j.audience), "msg=connected")
	j.joining(t, j.a.name, former, "msg=connected")
}

// The server fetches the keys itself, from an issuer that only a proxy can find, and
// follows a rotation without a command.
func (j *joinBed) testDiscovery(t *testing.T) {
	public := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "public-issuer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:service-account-issuer-discovery"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:unauthenticated"}}}
	if _, err := j.a.clients.RbacV1().ClusterRoleBindings().Create(t.Context(), public, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l, err := j.a.Node.Listen(net.JoinHostPort(j.a.Kube.Host(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	handler := &proxytest.HTTP{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if "https://"+address != kubernetesIssuer+":443" {
			return nil, fmt.Errorf("%s is not the issuer", address)
		}
		return j.a.Node.DialContext(ctx, network, j.a.Kube.Address())
	}}
	proxy := proxytest.Serve(l, handler.Handle)
	t.Cleanup(proxy.Close)
	ca := j.path("issuer-ca.crt")
	if err := os.WriteFile(ca, j.a.Kube.CA.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	j.run(t, j.a, "join", "add", j.a.name, "--issuer", kubernetesIssuer, "--ca", ca, "--proxy", "http://"+proxy.Addr())
	j.joining(t, j.a.name, j.a.token(t, j.a.pod, 600, j.audience), "msg=connected")
	if err := j.a.Kube.RotateTokenKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.joining(t, j.a.name, j.a.token(t, j.a.pod, 600, j.audience), "msg=connected")
	j.joining(t, j.a.name, j.b.token(t, j.b.pod, 600, j.audience), "no key of the name")
}

func (j *joinBed) testRemoved(t *testing.T) {
	j.run(t, j.a, "join", "remove", j.a.name)
	j.joining(t, j.a.name, j.a.token(t, j.a.pod, 600, j.audience), "is not registered")
}

// signToken signs claims as an API server with the key, of ECDSA P-256 in PEM.
func signToken(t *testing.T, keyPEM []byte, claims map[string]any) string {
	t.Helper()
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		t.Fatal("no key in PEM")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(payload)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}
