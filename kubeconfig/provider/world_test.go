package provider_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const (
	namespace = "clusters"
	name      = "c1"
	canary    = "Canary7f3aSecret"
)

// authority is a cluster's CA.
type authority struct{ cert, key []byte }

func newAuthority(t testing.TB) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		NotBefore: time.Now().Add(-5 * time.Minute).UTC().Truncate(time.Second), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour).UTC().Truncate(time.Second),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return authority{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
}

func (a authority) secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-ca", ResourceVersion: "1", Labels: map[string]string{kubeconfig.ClusterNameLabel: name}},
		Type:       kubeconfig.SecretType,
		Data:       map[string][]byte{"tls.crt": a.cert, "tls.key": a.key},
	}
}

// world is a Cluster, its Secrets, and what a probe would find.
type world struct {
	t       testing.TB
	cluster provider.Cluster
	secrets provider.Secrets
	config  provider.Config
	ca      authority

	// probe says why a kubeconfig does not lead to the API server.
	probe func(*clientcmdapi.Cluster) error
	// own is the same for our own clients; nil: they get nowhere else than client-go.
	own func(*clientcmdapi.Cluster) error

	memories   map[string]**corev1.Secret
	crash      bool // after the next write of a memory
	forgetful  bool // no memory can be written
	remembered int  // writes of memories
	version    int
	writes     int // of other Secrets
	probes     int
	events     []provider.Event
	told       []string // all that was told in public
}

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, ca: newAuthority(t),
		cluster: provider.Cluster{
			Namespace: namespace, Name: name, UID: "uid-1", APIVersion: "cluster.x-k8s.io/v1beta2",
			Endpoint: kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443}, HasControlPlane: true,
			Annotations: map[string]string{}, NamespaceAnnotations: map[string]string{},
		},
		config: provider.Config{Results: map[string]provider.Result{}},
		probe:  func(*clientcmdapi.Cluster) error { return nil },

		memories: map[string]**corev1.Secret{},
	}
	w.secrets.CA = w.ca.secret()
	return w
}

func (w *world) annotate(name, value string) { w.cluster.Annotations[provider.Prefix+name] = value }

// controlPlane writes the Secret as Cluster API does: for a new one, and as it
// regenerates one, of which it keeps nothing but the server.
func (w *world) controlPlane() {
	w.t.Helper()
	config, err := kubeconfig.Spec{
		Name: name, Endpoint: w.cluster.Endpoint, CA: w.ca.cert,
		Credentials: kubeconfig.Credentials{CAKey: w.ca.key},
	}.Build()
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := kubeconfig.Secret(name, namespace, config, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "kcp", UID: "uid-kcp"}}
	if old := w.secrets.Kubeconfig; old != nil {
		if entry := w.entry(old); entry != nil {
			config.Clusters[name].Server = entry.Server
		}
		value, err := clientcmd.Write(*config)
		if err != nil {
			w.t.Fatal(err)
		}
		s = old.DeepCopy()
		s.Data[kubeconfig.SecretKey] = value
	}
	w.secrets.Kubeconfig = w.stored(s)
}

// stored is s as the API server keeps it.
func (w *world) stored(s *corev1.Secret) *corev1.Secret {
	w.version++
	s = s.DeepCopy()
	s.ResourceVersion = strconv.Itoa(w.version)
	if s.UID == "" {
		s.UID = types.UID("uid-" + s.ResourceVersion)
	}
	return s
}

func (w *world) route(name string, data map[string]string) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{provider.LabelRoute: ""}}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	w.secrets.Route = w.stored(s)
}

// entry is the current context's cluster; nil if it can't be read.
func (w *world) entry(s *corev1.Secret) *clientcmdapi.Cluster {
	config, err := clientcmd.Load(s.Data[kubeconfig.SecretKey])
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return nil
	}
	return config.Clusters[config.Contexts[config.CurrentContext].Cluster]
}

func (w *world) kubeconfig() *clientcmdapi.Cluster {
	w.t.Helper()
	if w.secrets.Kubeconfig == nil {
		w.t.Fatal("there is no kubeconfig")
	}
	entry := w.entry(w.secrets.Kubeconfig)
	if entry == nil {
		w.t.Fatal("the kubeconfig can't be read")
	}
	return entry
}

// plan calls Plan, checks what holds of every plan, and answers its probes.
func (w *world) plan() provider.Action {
	w.t.Helper()
	for range 4 {
		w.config.Now = time.Now()
		settings, _ := provider.Resolve(w.cluster, w.config)
		w.secrets.Records, w.secrets.SecondaryRecords = *w.memory(), *w.slot(provider.RecordsName(settings.SecondaryName))
		cluster, secrets, config := w.snapshot()
		action, err := provider.Plan(w.cluster, w.secrets, w.config)
		if err != nil {
			w.t.Fatal(err)
		}
		if !reflect.DeepEqual([]any{w.cluster, w.secrets, w.config}, []any{cluster, secrets, config}) {
			w.t.Fatal("Plan wrote to its arguments")
		}
		w.check(action)
		if len(action.Probe) == 0 {
			return action
		}
		for _, c := range action.Probe {
			w.answer(c)
		}
	}
	w.t.Fatal("Plan asks again and again")
	return provider.Action{}
}

func (w *world) snapshot() (provider.Cluster, provider.Secrets, provider.Config) {
	cluster, config := w.cluster, w.config
	cluster.Annotations, cluster.NamespaceAnnotations = maps.Clone(cluster.Annotations), maps.Clone(cluster.NamespaceAnnotations)
	if w.cluster.Condition != nil {
		cluster.Condition = w.cluster.Condition.DeepCopy()
	}
	config.Results = maps.Clone(config.Results)
	s := w.secrets
	return cluster, provider.Secrets{
		Kubeconfig: s.Kubeconfig.DeepCopy(), CA: s.CA.DeepCopy(), Secondary: s.Secondary.DeepCopy(), Route: s.Route.DeepCopy(), SoleUser: s.SoleUser,
		Records: s.Records.DeepCopy(), SecondaryRecords: s.SecondaryRecords.DeepCopy(),
	}, config
}

func (w *world) answer(c provider.Candidate) {
	w.t.Helper()
	w.probes++
	r := provider.Result{At: time.Now(), Report: probe.Report{Steps: []probe.Step{{Phase: probe.PhaseReady}}}}
	entry := c.Config.Clusters[c.Config.Contexts[c.Config.CurrentContext].Cluster]
	ask := w.probe
	if c.Extension && w.own != nil {
		ask = w.own
	}
	if err := ask(entry); err != nil {
		r.Failures = w.config.Results[c.Key].Failures + 1
		phase, cause, _ := strings.Cut(err.Error(), ": ")
		r.Report.Steps = []probe.Step{{Phase: probe.Phase(phase), Cause: cause, Advice: "Do something.", Err: err}}
	}
	w.config.Results[c.Key] = r
}

// check is what holds of every Action.
func (w *world) check(a provider.Action) {
	w.t.Helper()
	writes := 0
	for _, s := range []*corev1.Secret{a.Create, a.Update, a.Delete} {
		if s == nil {
			continue
		}
		writes++
		if (s.ResourceVersion == "") != (s == a.Create) {
			w.t.Fatalf("resourceVersion %q", s.ResourceVersion)
		}
		w.told = append(w.told, toJSON(s.ObjectMeta))
	}
	if s := a.Records; s != nil {
		if owners := s.OwnerReferences; len(owners) != 1 || string(owners[0].UID) != w.cluster.UID || s.Type != corev1.SecretTypeOpaque || s.Labels[kubeconfig.ClusterNameLabel] != name {
			w.t.Fatalf("a memory that the Cluster does not own: %s", toJSON(s.ObjectMeta))
		}
		w.told = append(w.told, toJSON(s.ObjectMeta))
	}
	if writes > 1 || len(a.Probe) > 0 && (writes > 0 || a.Records != nil || len(a.Events) > 0 || a.Condition != nil) {
		w.t.Fatal("more than one thing to do at once")
	}
	w.told = append(w.told, toJSON(a.Events), toJSON(a.Condition))
	for _, c := range a.Probe {
		w.told = append(w.told, c.Key)
	}
	for _, text := range w.told {
		if strings.Contains(text, canary) || strings.Contains(text, "PRIVATE KEY") {
			w.t.Fatalf("holds a secret: %s", text)
		}
	}
	w.told = nil
}

func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// do carries an Action out.
func (w *world) do(a provider.Action) bool {
	w.t.Helper()
	w.events = append(w.events, a.Events...)
	if a.Condition != nil {
		w.cluster.Condition = a.Condition
	}
	remember := func() {
		m := a.Records
		slot := w.slot(m.Name)
		if *slot != nil && (*slot).ResourceVersion != m.ResourceVersion || equality.Semantic.DeepEqual(*slot, m) {
			w.t.Fatal("a memory that was not read, or does not change")
		}
		*slot = w.stored(m)
		w.remembered++
	}
	if w.forgetful && a.Records != nil {
		if !a.RecordsLast {
			return false // no other write follows
		}
		remember = func() {}
	}
	if a.Records != nil && !a.RecordsLast {
		if remember(); w.crash {
			w.crash = false
			return true
		}
	}
	switch {
	case a.Create != nil:
		if w.admit(nil, a.Create) != a.Create {
			w.t.Fatal("a webhook changes what the provider writes")
		}
		*w.slot(a.Create.Name) = w.stored(a.Create)
	case a.Update != nil:
		slot := w.slot(a.Update.Name)
		if (*slot).ResourceVersion != a.Update.ResourceVersion {
			w.t.Fatal("written with another resourceVersion than was read")
		}
		if equality.Semantic.DeepEqual(*slot, a.Update) {
			w.t.Fatal("a write that changes nothing")
		}
		if w.admit(*slot, a.Update) != a.Update {
			w.t.Fatal("a webhook changes what the provider writes")
		}
		w.notDirect(*slot, a.Update)
		*slot = w.stored(a.Update)
	case a.Delete != nil:
		*w.slot(a.Delete.Name) = nil
	case a.Records == nil:
		return false
	default:
		w.writes--
	}
	if w.writes++; a.Records != nil && a.RecordsLast {
		remember()
	}
	return true
}

// notDirect fails if a write turns a route by a proxy into a direct one, and nothing says
// that.
func (w *world) notDirect(before, after *corev1.Secret) {
	w.t.Helper()
	was, is := w.entry(before), w.entry(after)
	if was == nil || is == nil || was.ProxyURL == "" || is.ProxyURL != "" {
		return
	}
	s, _ := provider.Resolve(w.cluster, w.config)
	if s.ProxyURL == provider.Direct || s.NoProxy != "" || s.Mode == provider.Off || s.Mode == provider.Secondary {
		return
	}
	w.t.Fatalf("direct, and nothing says so: %+v", s)
}

// memory is what is remembered about the kubeconfig.
func (w *world) memory() **corev1.Secret { return w.slot(provider.RecordsName(name + "-kubeconfig")) }

func (w *world) slot(secret string) **corev1.Secret {
	switch {
	case secret == name+"-kubeconfig":
		return &w.secrets.Kubeconfig
	case strings.HasSuffix(secret, provider.RecordsName("")):
		if w.memories[secret] == nil {
			w.memories[secret] = new(*corev1.Secret)
		}
		return w.memories[secret]
	}
	return &w.secrets.Secondary
}

// settle plans until nothing is left to do now, and returns the last Action.
// It ends with a second look, which must find nothing.
func (w *world) settle() provider.Action {
	w.t.Helper()
	w.events = nil
	for range 8 {
		a := w.plan()
		if w.do(a) {
			continue
		}
		again := w.plan()
		if again.Create != nil || again.Update != nil || again.Delete != nil || again.Records != nil || len(again.Events) > 0 || !reflect.DeepEqual(again.Condition, a.Condition) {
			w.t.Fatalf("a second plan has something to do: %s", toJSON(again))
		}
		return again
	}
	w.t.Fatalf("no end of writes; the last: %s", toJSON(w.events))
	return provider.Action{}
}

// wait lets time pass, and plans as Action.After says.
func (w *world) wait(d time.Duration) {
	w.t.Helper()
	writes := 0 // at one time
	for end := time.Now().Add(d); time.Now().Before(end); {
		a := w.plan()
		if w.do(a) {
			if writes++; writes > 8 {
				w.t.Fatal("no end of writes")
			}
			continue
		}
		writes = 0
		left := time.Until(end)
		if a.After > 0 {
			left = min(left, a.After)
		}
		time.Sleep(left)
	}
	w.settle()
}

func (w *world) condition(status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	c := w.cluster.Condition
	if c == nil || c.Status != status || c.Reason != reason {
		w.t.Fatalf("got condition %s, want %s %s", toJSON(c), status, reason)
	}
}

func (w *world) phase(want provider.RouteState) {
	w.t.Helper()
	if got := w.secrets.Kubeconfig.Annotations[provider.AnnotationPhase]; got != string(want) {
		w.t.Fatalf("got phase %q, want %q", got, want)
	}
}

func (w *world) proxy(want string) {
	w.t.Helper()
	if got := w.kubeconfig().ProxyURL; got != want {
		w.t.Fatalf("got proxy-url %q, want %q", got, want)
	}
}

// down fails the probe of what goes by one of these proxies; "" is directly.
func down(proxies ...string) func(*clientcmdapi.Cluster) error {
	return func(c *clientcmdapi.Cluster) error {
		for _, p := range proxies {
			if c.ProxyURL == p || p != "" && strings.Contains(c.ProxyURL, p) {
				return errors.New("tcp: connection refused from 127.0.0.1:" + strconv.Itoa(int(time.Now().UnixNano()%60000)))
			}
		}
		return nil
	}
}

func clientCertificate(t testing.TB, s *corev1.Secret) *x509.Certificate {
	t.Helper()
	config, err := clientcmd.Load(s.Data[kubeconfig.SecretKey])
	if err != nil {
		t.Fatal(err)
	}
	data := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].ClientCertificateData
	block, _ := pem.Decode(bytes.TrimSpace(data))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newPool(ca []byte) x509.VerifyOptions {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}
