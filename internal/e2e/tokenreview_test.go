package e2e

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel/gateway"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// clientsNamespace has the clients, and the cluster clients/prod.
const clientsNamespace = "tunnel-clients"

// token returns one of a ServiceAccount, for audiences, or else the API server.
func token(t *testing.T, admin clientset.Interface, namespace, account string, audiences ...string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	request, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// testGateway: clients of a gateway are ServiceAccounts, and RBAC says which
// clusters they may reach.
func (r *replicas) testGateway(t *testing.T) {
	const audience = "tunnel.example.com"
	r.account(t, clientsNamespace, "annie")
	r.account(t, clientsNamespace, "bob")
	r.allow(t, "annie", "prod")
	annie := token(t, r.admin, clientsNamespace, "annie", audience)
	address, seen := r.serveGateway(t, &kubernetes.TokenReview{Client: r.one, Audiences: []string{audience}, Remember: -1})
	away, err := clientset.NewForConfig(&rest.Config{Host: "https://192.0.2.254", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no way there")
	}})
	if err != nil {
		t.Fatal(err)
	}
	alone, _ := r.serveGateway(t, &kubernetes.TokenReview{Client: away, Audiences: []string{audience}})
	const prod = clientsNamespace + "/prod"
	check := func(name, gateway, cluster, token string, want int) {
		t.Helper()
		if got := connectStatus(t, gateway, cluster, token); got != want {
			t.Errorf("%s: got status %d, want %d", name, got, want)
		}
	}
	check("let in", address, prod, annie, 200)
	if got := <-seen; got.Client.Name != "system:serviceaccount:"+clientsNamespace+":annie" || got.Cluster != prod || got.Credentials.Password != "" {
		t.Errorf("got the request %+v", got)
	}
	check("another cluster", address, clientsNamespace+"/dev", annie, 403)
	check("another's namespace", address, "default/prod", annie, 403)
	check("without a right", address, prod, token(t, r.admin, clientsNamespace, "bob", audience), 403)
	check("for the API server", address, prod, token(t, r.admin, clientsNamespace, "annie"), 407)
	check("changed", address, prod, annie[:len(annie)-8]+"AAAAAAAA", 407)
	check("the API server is away", alone, prod, annie, 503)
	if err := r.admin.CoreV1().ServiceAccounts(clientsNamespace).Delete(t.Context(), "annie", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// kube-apiserver itself remembers a token for ten seconds.
	eventually(t, "the token to end with its ServiceAccount", func(context.Context) error {
		if got := connectStatus(t, address, prod, annie); got != 407 {
			return errors.New("it is let in still")
		}
		return nil
	})
}

// allow lets a ServiceAccount connect to a cluster of its namespace.
func (r *replicas) allow(t *testing.T, account, cluster string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: clientsNamespace, Name: account}
	_, err := r.admin.RbacV1().Roles(meta.Namespace).Create(t.Context(),
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{kubernetes.AccessRule(cluster)}}, metav1.CreateOptions{})
	if err == nil {
		_, err = r.admin.RbacV1().RoleBindings(meta.Namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: account},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: meta.Namespace, Name: account}}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serveGateway serves clients until the test ends. What they ask for leads to
// a pipe whose other end is closed.
func (r *replicas) serveGateway(t *testing.T, review *kubernetes.TokenReview) (address string, seen chan gateway.Request) {
	t.Helper()
	seen = make(chan gateway.Request, 100)
	g := &gateway.Gateway{Authenticate: review.Authenticate, Hooks: gateway.Hooks{Failed: func(err error) { t.Log(err) }},
		Dial: func(_ context.Context, r gateway.Request) (net.Conn, error) {
			select {
			case seen <- r:
			default:
			}
			near, far := net.Pipe()
			far.Close()
			return near, nil
		}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	during(t, func(ctx context.Context) error { return g.ServeConnect(ctx, l) })
	return l.Addr().String(), seen
}

// connectStatus returns the status that a client gets that has a proxy URL.
func connectStatus(t *testing.T, address, cluster, token string) int {
	t.Helper()
	return connectFrom(t, nil, address, cluster, token)
}

// connectFrom is connectStatus for a client that is elsewhere.
func connectFrom(t *testing.T, from dialer.Dialer, address, cluster, token string) int {
	t.Helper()
	d, err := dialer.FromURL(&url.URL{Scheme: "http", Host: address, User: url.UserPassword(cluster, token)}, &dialer.Options{Forward: from})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.DialContext(t.Context(), "tcp", "kubernetes.default.svc:443")
	if err == nil {
		conn.Close()
		return 200
	}
	var e *dialer.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	return e.Status
}
