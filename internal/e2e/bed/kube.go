package bed

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// APIPort is the port of kube-apiserver, the only listener on it in its namespace.
const APIPort = 6443

// SNIName is a name of kube-apiserver's that says which cluster it is.
const SNIName = "prod.e2e.clusters.example.com"

// A Kube is a kube-apiserver and its etcd.
type Kube struct {
	// CA signed the serving certificate, and is what kube-apiserver trusts
	// client certificates of: the role of the Secret <cluster>-ca.
	CA *pki.CA

	ns        *Namespace
	host      string
	bin, dir  string
	name      string // what its programs' names begin with
	more      KubeOptions
	command   []string // kube-apiserver's
	apiserver *Process
	etcd      *Process
}

// Host and Port are the endpoint: to that of the bed's own, only the proxy
// namespace has a route.
func (k *Kube) Host() string { return k.host }

// Port returns the endpoint's port.
func (k *Kube) Port() int32 { return APIPort }

// Address returns the endpoint as host:port.
func (k *Kube) Address() string { return net.JoinHostPort(k.host, strconv.Itoa(APIPort)) }

// KubeOptions is how a control plane differs from the bed's own.
type KubeOptions struct {
	// CA is its own authority. Nil: it has that of the bed's, and the Node of the
	// bed's Kubelet, which may be out of its reach.
	CA   *pki.CA
	Args []string // more flags of kube-apiserver
	Env  []string // more variables of kube-apiserver, as name=value
	// StackedEtcd has etcd serve clients with a certificate of the CA at 127.0.0.1:2379, too, as
	// kubeadm's does. One control plane of a namespace can.
	StackedEtcd bool
}

// StartKube starts another control plane in ns, at one of its addresses. It runs
// until Stop, at the latest until the bed ends.
func (b *Bed) StartKube(ctx context.Context, ns *Namespace, name, host string, o KubeOptions) (*Kube, error) {
	k := &Kube{CA: cmp.Or(o.CA, b.Kube.CA), ns: ns, host: host, bin: b.bin, dir: filepath.Join(b.Dir, name), name: name + "-", more: o}
	err := k.start(ctx)
	if err == nil && o.CA == nil {
		err = k.addNode(ctx)
	}
	if err != nil {
		k.Stop()
		return nil, err
	}
	return k, nil
}

// Stop ends both programs and waits for their end.
func (k *Kube) Stop() {
	k.apiserver.Stop()
	k.etcd.Stop()
}

func (k *Kube) start(ctx context.Context) error {
	if err := os.Mkdir(k.dir, 0o700); err != nil { // no other control plane has the name
		return fmt.Errorf("bed: kube: %w", err)
	}
	// Both at once: kube-apiserver waits for etcd by itself.
	if err := k.startEtcd(); err != nil {
		return err
	}
	if err := k.startAPIServer(); err != nil {
		return err
	}
	return k.WaitReady(ctx)
}

// SetCA gives the API server a certificate of another authority, which it also
// trusts client certificates of, besides the one before: the files change under
// it, and SetCA returns when it serves by them. The endpoint stays.
func (k *Kube) SetCA(ctx context.Context, ca *pki.CA) error {
	before := k.CA
	k.CA = ca
	if err := k.writeCertificates(before); err != nil {
		return err
	}
	return k.WaitReady(ctx)
}

// RotateTokenKey starts the API server again with another key for the tokens of
// ServiceAccounts. Tokens of the key before stay valid.
func (k *Kube) RotateTokenKey(ctx context.Context) error {
	former := filepath.Join(k.dir, "former.key")
	if err := os.Rename(filepath.Join(k.dir, "apiserver.key"), former); err != nil {
		return fmt.Errorf("bed: rotate: %w", err)
	}
	k.apiserver.Stop()
	k.more.Args = append(k.more.Args, "--service-account-key-file="+former)
	if err := k.startAPIServer(); err != nil { // with a new apiserver.key
		return err
	}
	return k.WaitReady(ctx)
}

// isIPv6 tells whether the control plane is on a host without IPv4.
func (k *Kube) isIPv6() bool { return strings.Contains(k.host, ":") }

func (k *Kube) loopback() string {
	if k.isIPv6() {
		return "::1"
	}
	return "127.0.0.1"
}

func (k *Kube) etcdURL() string { return "unix://" + filepath.Join(k.dir, "etcd.sock") }

func (k *Kube) startEtcd() (err error) {
	urls, certificates := k.etcdURL(), []string(nil)
	if k.more.StackedEtcd {
		cert, key, err := writePair(k.dir, "etcd", k.CA.Server("127.0.0.1"))
		if err == nil {
			err = writeFiles(k.dir, 0o700, map[string]string{"etcd-ca.crt": string(k.CA.CertPEM())})
		}
		if err != nil {
			return err
		}
		urls += ",https://127.0.0.1:2379"
		certificates = []string{"--cert-file=" + cert, "--key-file=" + key, "--client-cert-auth", "--trusted-ca-file=" + filepath.Join(k.dir, "etcd-ca.crt")}
	}
	k.etcd, err = k.ns.start(k.name+"etcd", append([]string{filepath.Join(k.bin, "etcd"),
		"--data-dir=" + filepath.Join(k.dir, "etcd"),
		"--listen-client-urls=" + urls,
		"--advertise-client-urls=http://" + net.JoinHostPort(k.loopback(), "2379"), // must be TCP; nobody uses it
		"--listen-peer-urls=http://" + net.JoinHostPort(k.loopback(), "0"),
		"--initial-advertise-peer-urls=http://" + net.JoinHostPort(k.loopback(), "2380"),
		"--initial-cluster=default=http://" + net.JoinHostPort(k.loopback(), "2380"),
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, certificates...)...)
	return err
}

func (k *Kube) startAPIServer() error {
	if err := k.writeCertificates(); err != nil {
		return err
	}
	cert, key, ca := filepath.Join(k.dir, "apiserver.crt"), filepath.Join(k.dir, "apiserver.key"), filepath.Join(k.dir, "ca.crt")
	kubeletCert, kubeletKey, err := writePair(k.dir, "kubelet-client", k.CA.Client("kube-apiserver-kubelet-client", "system:masters"))
	if err != nil {
		return err
	}
	services := "10.0.0.0/24"
	if k.isIPv6() {
		services = "fd00:10::/108"
	}
	argv := []string{filepath.Join(k.bin, "kube-apiserver"),
		"--etcd-servers=" + k.etcdURL(),
		"--bind-address=" + k.host,
		"--advertise-address=" + k.host,
		"--secure-port=" + strconv.Itoa(APIPort),
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + k.dir,
		"--tls-cert-file=" + cert,
		"--tls-private-key-file=" + key,
		"--client-ca-file=" + ca,
		"--kubelet-certificate-authority=" + ca,
		"--kubelet-client-certificate=" + kubeletCert,
		"--kubelet-client-key=" + kubeletKey,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=" + services,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--disable-admission-plugins=ServiceAccount", // no controller makes any
	}
	return k.StartAPIServer(append(argv, k.more.Args...))
}

// StartAPIServer starts kube-apiserver with a command of the test's, such as a
// changed one of APIServerCommand, after StopAPIServer.
func (k *Kube) StartAPIServer(command []string) (err error) {
	k.command = command
	// Its own /proc, as in a container: its metrics tell when the process has started.
	argv := []string{"/bin/sh", "-c", `mount -t proc proc /proc && exec env "$@"`, "kube-apiserver"}
	k.apiserver, err = k.ns.start(k.name+"kube-apiserver", slices.Concat(argv, k.more.Env, command)...)
	return err
}

// StopAPIServer stops kube-apiserver. etcd runs on.
func (k *Kube) StopAPIServer() { k.apiserver.Stop() }

// APIServerCommand returns the program and the flags that kube-apiserver was
// started with last.
func (k *Kube) APIServerCommand() []string { return slices.Clone(k.command) }

// writeCertificates writes what kube-apiserver serves with, and what it trusts
// clients of: the authority and those before it.
func (k *Kube) writeCertificates(before ...*pki.CA) error {
	names := []string{"kube-apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "10.0.0.1", k.host, SNIName}
	if _, _, err := writePair(k.dir, "apiserver", k.CA.Server(names...)); err != nil {
		return err
	}
	trusted := k.CA.CertPEM()
	for _, ca := range before {
		trusted = append(trusted, ca.CertPEM()...)
	}
	return writeFiles(k.dir, 0o700, map[string]string{"ca.crt": string(trusted)})
}

// writePair stores a certificate and its key as name.crt and name.key.
func writePair(dir, name string, pair tls.Certificate) (cert, key string, err error) {
	certPEM, keyPEM := pki.PEM(pair)
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	return cert, key, writeFiles(dir, 0o700, map[string]string{name + ".crt": string(certPEM), name + ".key": string(keyPEM)})
}

// WaitReady waits until the API server is ready.
func (k *Kube) WaitReady(ctx context.Context) error {
	transport := &http.Transport{
		DialContext:     k.ns.DialContext,
		TLSClientConfig: &tls.Config{RootCAs: k.CA.Pool()},
	}
	defer transport.CloseIdleConnections()
	return Poll(ctx, "kube-apiserver to be ready", func(ctx context.Context) error {
		for _, p := range []*Process{k.etcd, k.apiserver} {
			if err := p.exitError(); err != nil {
				return Stop(err)
			}
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+k.Address()+"/readyz", nil)
		if err != nil {
			return Stop(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s: %s", resp.Status, body)
		}
		return err
	})
}

// Config returns the configuration of an administrator's client that is beside
// the API server: what tests prepare with, not what they test.
func (k *Kube) Config() *rest.Config {
	cert, key := pki.PEM(k.CA.Client("bed", "system:masters"))
	return &rest.Config{
		Host:            "https://" + k.Address(),
		Dial:            k.ns.DialContext,
		Proxy:           func(*http.Request) (*url.URL, error) { return nil, nil },
		TLSClientConfig: rest.TLSClientConfig{CAData: k.CA.CertPEM(), CertData: cert, KeyData: key},
	}
}

// clients are the administrator's.
func (k *Kube) clients() *kubernetes.Clientset { return kubernetes.NewForConfigOrDie(k.Config()) }

// addNode makes the Node by which kube-apiserver finds the Kubelet.
func (k *Kube) addNode(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName}}
	node, err := k.clients().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: APIIP}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
	_, err = k.clients().CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// AddNamespace makes a namespace.
func (k *Kube) AddNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := k.clients().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return err
}

// AddPod makes a pod in a namespace that exists; it runs at once.
func (k *Kube) AddPod(ctx context.Context, namespace, name string) error {
	pods := k.clients().CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: NodeName, Containers: []corev1.Container{{Name: "main", Image: "none", Stdin: true}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}
