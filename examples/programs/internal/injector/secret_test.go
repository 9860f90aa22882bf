package injector

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/clitest"
)

func secretWith(namespace, name string, pairs map[string]string) map[string]any {
	data := map[string]any{}
	for key, value := range pairs {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": namespace, "name": name}, "data": data}
}

func namespaceWith(name string, labels map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels}}
}

// TestConfigSecret: the configuration comes from a Secret and a ConfigMap with values,
// what the cluster needs is looked up, and the pods' Secret is kept where pods are.
func TestConfigSecret(t *testing.T) {
	f := newFiles(t)
	s := apitest.New(t)
	f.write("kubeconfig", []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: '"+s.URL+"'}}]\ncontexts: [{name: c, context: {cluster: c}}]\n"))
	for name, labels := range map[string]map[string]any{
		"a": nil, "proxy-injector": nil, "kube-system": nil, "off": {"causewayproject.github.io/inject-proxy": "false"}, "always": nil,
	} {
		s.Set("namespaces", namespaceWith(name, labels))
	}
	s.Set("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "kube-system", "name": "kubeadm-config"},
		"data": map[string]any{"ClusterConfiguration": "networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/12}"}})
	p := clitest.Start(t, run, nil, "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0", "--kubeconfig", filepath.Join(f.dir, "kubeconfig"), "--config-secret", "proxy-injector/source",
		"--cert", filepath.Join(f.dir, "tls.crt"), "--key", filepath.Join(f.dir, "tls.key"), "--secret", "proxy", "--services", "10.1.0.0/16",
		"--skip-namespace", "proxy-injector,always", "--always", "always/app=x", "--drain-delay", "1ms")
	address, health := p.Await(`for=reviews address=(\S+)`), p.Await(`for=health address=(\S+)`)
	p.Await(`msg="the cluster's own" pods=10.244.0.0/16 services=10.1.0.0/16`)
	p.Await(`msg="not discovered" what=ServiceDomain set=--domain`)
	p.Await(`what was before stays" .*there is none`)
	if code, text := clitest.Get(t, "http://"+health+"/readyz"); code != 503 || !strings.Contains(text, "no configuration yet") {
		t.Errorf("got %d %s, want 503", code, text)
	}
	// A namespace that the program does not know yet: the pod may start.
	s.Set("secrets", secretWith("proxy-injector", "source", map[string]string{"values": "cluster: {proxy: {https: 'http://user:" + canary + "@proxy:1'}}"}))
	p.Await(`target="Secret a/proxy" verb=create`)
	p.Await(`target="Secret always/proxy" verb=create`)
	if code, _ := clitest.Get(t, "http://"+health+"/readyz"); code != 200 {
		t.Errorf("got %d, want 200", code)
	}
	s.Set("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "proxy-injector", "name": "source"},
		"data": map[string]any{"values": "cluster: {proxy: {noProxy: corp.test}}"}})
	p.Await(`msg=config config="HTTPS_PROXY=http://redacted@proxy:1 NO_PROXY=localhost,.*,corp\.test"`)
	const list = "localhost,127.0.0.1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default,10.1.0.0/16,10.244.0.0/16,corp.test"
	inA := apitest.Named("secrets", "a", "proxy")
	s.Until(t, "the list", func() bool {
		text, _, _ := unstructured.NestedString(s.Get(inA).Object, "data", "NO_PROXY")
		return text == base64.StdEncoding.EncodeToString([]byte(list))
	})
	for namespace, want := range map[string]string{
		"a": `{"name":"proxy","key":"HTTPS_PROXY"}`, "new": `{"name":"proxy","key":"HTTPS_PROXY","optional":true}`,
	} {
		patch, _, err := f.ask(address, strings.NewReader(strings.Replace(question, `"namespace":"a"`, `"namespace":"`+namespace+`"`, 1)))
		if err != nil || !strings.Contains(patch, want) || !strings.Contains(patch, list+`,$(KUBERNETES_SERVICE_HOST)"`) {
			t.Errorf("%s: got %s, %v; want %s and %s", namespace, patch, err, want, list)
		}
	}
	for _, none := range []string{"off", "kube-system"} {
		if s.Get(apitest.Named("secrets", none, "proxy")) != nil {
			t.Errorf("got a Secret in %s", none)
		}
	}
	if err := p.Stop(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if text, _ := os.ReadFile(filepath.Join(f.dir, "kubeconfig")); strings.Contains(p.Text(), canary) || len(text) == 0 {
		t.Error("the password is in the log")
	}
}
