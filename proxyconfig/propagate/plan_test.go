package propagate_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

var all = []string{"create Secret org/one-systemd-proxy", "create Secret org/one-cluster-values", "create ConfigMap org/one-cluster-values"}

// What each source says, and what comes of it for machines and apps.
func TestPlanConfiguration(t *testing.T) {
	tests := []struct {
		name   string
		change func(*world)
		want   got
	}{
		{"golden", func(*world) {}, everywhere(proxy, golden)},
		{"https alone", func(w *world) { w.installation("HTTPS_PROXY", proxy, "NO_PROXY", people) },
			got{map[string]string{"HTTPS_PROXY": proxy, "NO_PROXY": golden}, proxyconfig.Config{HTTPSProxy: proxy, NoProxy: golden}}},
		{"values", func(w *world) {
			w.installation("values", "proxy: {http: '"+proxy+"', https: '"+proxy+"', noProxy: '"+people+"'}")
		}, everywhere(proxy, golden)},
		{"values as files have them", func(w *world) {
			w.installation("HTTP_PROXY", proxy+"\n", "HTTPS_PROXY", proxy+"\r\n", "NO_PROXY", people+"\n")
		}, everywhere(proxy, golden)},
		{"override: values as files have them", func(w *world) {
			w.override("HTTP_PROXY", other+"\n", "HTTPS_PROXY", other+"\n", "NO_PROXY", "a.test\n")
		}, everywhere(other, strings.Replace(golden, people, people+",a.test", 1))},
		{"values and keys that agree", func(w *world) {
			w.installation("values", "http_proxy: "+proxy, "HTTP_PROXY", proxy, "HTTPS_PROXY", proxy, "NO_PROXY", people)
		}, everywhere(proxy, golden)},
		{"domain and nodes", func(w *world) {
			w.cluster.Facts.ServiceDomain, w.cluster.Facts.NodeCIDRs = "corp.test", []string{"10.0.0.0/24"}
		}, everywhere(proxy, strings.Replace(strings.Replace(golden, "cluster.local", "corp.test", 1), people, "10.0.0.0/24,"+people, 1))},
		{"no networks of Services: kubeadm's", func(w *world) { w.cluster.Facts.ServiceCIDRs = nil }, everywhere(proxy, strings.Replace(golden, "100.64.0.0/13", "10.96.0.0/12", 1))},
		{"values of chart cluster", func(w *world) {
			w.installation("values", "global: {connectivity: {proxy: {enabled: true, httpProxy: '"+proxy+"', httpsProxy: '"+proxy+"', noProxy: '"+people+"'}}}")
		}, everywhere(proxy, golden)},
		{"values of chart cluster, off", func(w *world) {
			w.installation("NO_PROXY", people, "values", "global: {connectivity: {proxy: {enabled: false, httpProxy: '"+proxy+"'}}}")
		}, everywhere("", golden)},
		{"containerd: the installation's", func(w *world) { w.config.ContainerdInstallation = true }, machines(proxy, people, proxy, golden)},
		{"containerd: the installation has no list", func(w *world) {
			w.config.ContainerdInstallation = true
			w.installation("HTTP_PROXY", proxy, "HTTPS_PROXY", proxy)
		}, everywhere(proxy, computed)},
		{"credentials on machines", func(w *world) { w.config.Credentials = proxyconfig.CredentialsOnMachines }, machines(proxy, golden, bare, golden)},
		{"credentials nowhere", func(w *world) { w.config.Credentials = proxyconfig.CredentialsNowhere }, everywhere(bare, golden)},
		{"an installation without proxies", func(w *world) { w.installation("direct", "true", "NO_PROXY", people) }, everywhere("", golden)},

		{"override: nothing", func(w *world) { w.override() }, everywhere(proxy, golden)},
		{"override: URLs", func(w *world) { w.override("HTTP_PROXY", other, "HTTPS_PROXY", other) }, everywhere(other, golden)},
		{"override: list", func(w *world) { w.override("values", "no_proxy: a.test") }, everywhere(proxy, strings.Replace(golden, people, people+",a.test", 1))},
		{"override: own list", func(w *world) { w.override("NO_PROXY", "a.test", "ownList", "true\n") }, everywhere(proxy, strings.Replace(golden, people, "a.test", 1))},
		{"override: own list, not", func(w *world) { w.override("ownList", "false", "direct", "false") }, everywhere(proxy, golden)},
		{"override: direct", func(w *world) { w.override("direct", "true") }, everywhere("", golden)},
		{"override: chart cluster's proxy is off", func(w *world) { w.override("values", "global: {connectivity: {proxy: {enabled: false}}}") }, everywhere("", golden)},
		{"override: direct, with a proxy of its own", func(w *world) { w.override("direct", "true", "HTTP_PROXY", other, "HTTPS_PROXY", other) }, everywhere(other, golden)},
		{"override: containerd", func(w *world) { w.override("containerd", "installation", "NO_PROXY", "a.test") },
			machines(proxy, people+",a.test", proxy, strings.Replace(golden, people, people+",a.test", 1))},
		{"override: containerd, own list", func(w *world) { w.override("containerd", "installation", "NO_PROXY", "a.test", "ownList", "true") },
			machines(proxy, "a.test", proxy, strings.Replace(golden, people, "a.test", 1))},
		{"override: containerd, computed again", func(w *world) {
			w.config.ContainerdInstallation = true
			w.override("containerd", "computed")
		}, everywhere(proxy, golden)},
		{"override: credentials on machines", func(w *world) { w.override("credentials", "machines") }, machines(proxy, golden, bare, golden)},
		{"override: credentials nowhere", func(w *world) { w.override("credentials", "nowhere") }, everywhere(bare, golden)},
		{"override: credentials as they are", func(w *world) {
			w.config.Credentials = proxyconfig.CredentialsOnMachines
			w.override("credentials", "machines")
		}, machines(proxy, golden, bare, golden)},
		{"override: its own credentials everywhere", func(w *world) {
			w.config.Credentials = proxyconfig.CredentialsNowhere
			w.override("credentials", "everywhere", "HTTP_PROXY", other, "HTTPS_PROXY", other)
		}, everywhere(other, golden)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			names, err := w.settle()
			if err != nil || !slices.Equal(names, all) {
				t.Fatalf("got %v, %v, want %v", names, err, all)
			}
			if got := w.got(); !got.equal(tt.want) {
				t.Errorf("got %v %v, want %v %v", got.Machines, got.Apps, tt.want.Machines, tt.want.Apps)
			}
		})
	}
}

// What can't be used: nothing is written, what is there stays.
func TestPlanRefuses(t *testing.T) {
	const installation, override = "system/proxy", "org/one-proxy-override"
	tests := []struct {
		name        string
		change      func(*world)
		secret, key string // of the SourceError; "" for another error
		event       string
	}{
		{"no installation", func(w *world) { w.held.Installation = nil }, installation, "", ""},
		{"an empty one", func(w *world) { w.installation() }, installation, "", ""},
		{"one with a list alone", func(w *world) { w.installation("NO_PROXY", people) }, installation, "", ""},
		{"direct, and proxies", func(w *world) { w.installation("direct", "true", "HTTP_PROXY", proxy) }, installation, "direct", ""},
		{"one that is not direct", func(w *world) { w.installation("direct", "false") }, installation, "", ""},
		{"a bad URL", func(w *world) { w.installation("HTTP_PROXY", "http://user:"+canary+"@x@proxy") }, installation, "", ""},
		{"no YAML", func(w *world) { w.installation("values", "a: ["+canary) }, installation, "", ""},
		{"keys that differ", func(w *world) { w.installation("values", "http_proxy: "+other, "HTTP_PROXY", proxy) }, installation, "", ""},
		{"an unknown key", func(w *world) { w.installation("HTTP_PROXY", proxy, "http_proxy", proxy) }, installation, "http_proxy", ""},
		{"an override's key", func(w *world) { w.installation("HTTP_PROXY", proxy, "credentials", "nowhere") }, installation, "credentials", ""},
		{"no installation, direct", func(w *world) { w.held.Installation = nil; w.override("direct", "true") }, installation, "", ""},

		{"override: a bad URL", func(w *world) { w.override("HTTP_PROXY", canary) }, override, "", propagate.ReasonOverride},
		{"override: an unknown key", func(w *world) { w.override("HTTP_PROXYS", proxy) }, override, "HTTP_PROXYS", propagate.ReasonOverride},
		{"override: direct", func(w *world) { w.override("direct", canary) }, override, "direct", propagate.ReasonOverride},
		{"override: ownList", func(w *world) { w.override("ownList", "") }, override, "ownList", propagate.ReasonOverride},
		{"override: containerd", func(w *world) { w.override("containerd", canary) }, override, "containerd", propagate.ReasonOverride},
		{"override: credentials", func(w *world) { w.override("credentials", canary) }, override, "credentials", propagate.ReasonOverride},
		{"override: the installation's credentials let loose", func(w *world) {
			w.config.Credentials = proxyconfig.CredentialsNowhere
			w.override("credentials", "machines")
		}, override, "credentials", propagate.ReasonOverride},
		{"override: one of the installation's let loose", func(w *world) {
			w.config.Credentials = proxyconfig.CredentialsOnMachines
			w.override("credentials", "everywhere", "HTTP_PROXY", other)
		}, override, "credentials", propagate.ReasonOverride},
		{"override: another of the installation's let loose", func(w *world) {
			w.config.Credentials = proxyconfig.CredentialsOnMachines
			w.override("credentials", "everywhere", "HTTPS_PROXY", other)
		}, override, "credentials", propagate.ReasonOverride},

		{"a bad network", func(w *world) { w.cluster.Facts.PodCIDRs = []string{"10.0.0.0/99"} }, "", "", propagate.ReasonCluster},
		{"a bad endpoint", func(w *world) { w.cluster.Facts.ControlPlaneHosts = []string{"https://a"} }, "", "", propagate.ReasonCluster},
		{"a bad EnvSecret", func(w *world) { w.config.EnvSecret = "A B" }, "", "", propagate.ReasonCluster},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, before := range []bool{false, true} {
				w := newWorld(t)
				if before {
					w.settle()
				}
				was := w.got()
				tt.change(w)
				action, err := w.plan()
				var source *propagate.SourceError
				if ok := errors.As(err, &source); err == nil || ok != (tt.secret != "") || ok && (source.Secret != tt.secret || source.Key != tt.key) {
					t.Fatalf("got error %v, want one of %q, key %q", err, tt.secret, tt.key)
				}
				if len(action.Writes) > 0 || !w.got().equal(was) {
					t.Errorf("got %v, want no writes", action.Writes)
				}
				var event string
				for _, e := range action.Events {
					event += e.Reason
					if e.Type != corev1.EventTypeWarning || e.Message != err.Error() {
						t.Errorf("got %v, want a Warning with the error's text", e)
					}
				}
				if event != tt.event {
					t.Errorf("got Events %q, want %q", event, tt.event)
				}
			}
		})
	}
}

// What happens to a Cluster whose objects are there.
func TestPlanChanges(t *testing.T) {
	systemd, values, facts := "update Secret org/one-systemd-proxy", "update Secret org/one-cluster-values", "update ConfigMap org/one-cluster-values"
	tests := []struct {
		name   string
		change func(*world)
		want   []string
	}{
		{"nothing", func(*world) {}, nil},
		{"a new password", func(w *world) {
			w.installation("HTTP_PROXY", strings.Replace(proxy, canary, canary+"3", 1), "HTTPS_PROXY", proxy, "NO_PROXY", people)
		}, []string{systemd, values}},
		{"another list", func(w *world) { w.installation("HTTP_PROXY", proxy, "HTTPS_PROXY", proxy, "NO_PROXY", "a.test") }, []string{systemd, values, facts}},
		{"direct", func(w *world) { w.override("direct", "true") }, []string{systemd, values}},
		{"credentials on machines", func(w *world) { w.override("credentials", "machines") }, []string{systemd, values}},
		{"the endpoint", func(w *world) { w.cluster.Facts.ControlPlaneHosts = []string{"192.0.2.1"} }, []string{systemd, values, facts}},
		{"the endpoint is gone", func(w *world) { w.cluster.Facts.ControlPlaneHosts = nil }, []string{values, facts}},
		{"paused", func(w *world) { w.cluster.Paused = true; w.override("direct", "true") }, nil},
		{"deleting", func(w *world) { w.cluster.Deleting = true; w.override("direct", "true") }, nil},
		{"our key edited", func(w *world) { w.held.SystemdProxy.Data["containerdProxy"] = []byte("x") }, []string{systemd}},
		{"our key deleted", func(w *world) { w.held.Secret.Data = nil }, []string{values}},
		{"the ConfigMap's key moved", func(w *world) {
			w.held.ConfigMap.Data, w.held.ConfigMap.BinaryData = nil, map[string][]byte{"values": nil}
		}, []string{facts}},
		{"our label edited", func(w *world) { w.held.Secret.Labels["giantswarm.io/cluster"] = "two" }, []string{values}},
		{"our note deleted", func(w *world) { w.held.ConfigMap.Annotations = nil }, []string{facts}},
		{"owner dropped", func(w *world) { w.held.Secret.OwnerReferences = nil }, []string{values}},
		{"Cluster made anew", func(w *world) { w.cluster.UID = "uid-two" }, []string{systemd, values, facts}},
		{"owner in another version", func(w *world) { w.cluster.APIVersion = "cluster.x-k8s.io/v1beta1" }, nil},
		{"a drop-in deleted", func(w *world) { w.held.SystemdProxy = nil }, all[:1]},
		{"foreign keys", func(w *world) {
			w.held.Secret.Data["x"], w.held.Secret.Labels["x"], w.held.ConfigMap.Data["x"] = []byte("x"), "x", "x"
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			tt.change(w)
			names, err := w.settle()
			if err != nil || !slices.Equal(names, tt.want) {
				t.Errorf("got %v, %v, want %v", names, err, tt.want)
			}
			if w.cluster.Paused || w.cluster.Deleting {
				return
			}
			for _, m := range []metav1.ObjectMeta{w.held.SystemdProxy.ObjectMeta, w.held.Secret.ObjectMeta, w.held.ConfigMap.ObjectMeta} {
				if len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != w.cluster.UID || m.OwnerReferences[0].Controller != nil ||
					m.Labels["giantswarm.io/cluster"] != "one" || m.Labels["giantswarm.io/managed-by"] != "causeway" || m.Annotations["giantswarm.io/notes"] == "" {
					t.Errorf("got %v", m)
				}
			}
		})
	}
}

// A drop-in waits for the endpoint, the values do not.
func TestPlanWithoutEndpoint(t *testing.T) {
	w := newWorld(t)
	w.cluster.Facts.ControlPlaneHosts = nil
	if names, err := w.settle(); err != nil || !slices.Equal(names, all[1:]) {
		t.Errorf("got %v, %v, want %v", names, err, all[1:])
	}
	w.cluster.Facts.ControlPlaneHosts = []string{"178.170.32.59"}
	if names, err := w.settle(); err != nil || len(names) != 3 || names[0] != all[0] || !w.got().equal(everywhere(proxy, golden)) {
		t.Errorf("got %v, %v, want all three, the drop-in first", names, err)
	}
}

// What is another's stays, keys and owners in what is ours, too.
func TestPlanForeign(t *testing.T) {
	immutable := true
	tests := []struct {
		name   string
		change func(m *metav1.ObjectMeta, immutable **bool)
		want   string
	}{
		{"another manager's", func(m *metav1.ObjectMeta, _ **bool) { m.Labels[propagate.LabelManagedBy] = "app-operator" },
			"is managed by app-operator, and is left as it is: give ours another name by ValuesName or SystemdName (--values-name, --systemd-name), or set its label giantswarm.io/managed-by to causeway, and its values give way to ours"},
		{"nobody's", func(m *metav1.ObjectMeta, _ **bool) { m.Labels = nil },
			"has no label giantswarm.io/managed-by, and is left as it is: delete it, or set the label to causeway"},
		{"another Cluster's", func(m *metav1.ObjectMeta, _ **bool) {
			m.OwnerReferences[0].Name, m.OwnerReferences[0].UID = "two", "uid-two"
		},
			"has our label, but is not ours, and is left as it is: it has another owner than the Cluster: delete it, and it is made anew"},
		{"another Cluster's, with the UID of this one", func(m *metav1.ObjectMeta, _ **bool) { m.OwnerReferences[0].Name = "two" },
			"has our label, but is not ours, and is left as it is: it has another owner than the Cluster: delete it, and it is made anew"},
		{"a Machine's of the Cluster's name and UID", func(m *metav1.ObjectMeta, _ **bool) { m.OwnerReferences[0].Kind = "Machine" },
			"has our label, but is not ours, and is left as it is: it has another owner than the Cluster: delete it, and it is made anew"},
		{"immutable", func(_ *metav1.ObjectMeta, i **bool) { *i = &immutable }, "is immutable: delete it, and it is made anew"},
	}
	for _, tt := range tests {
		for i, object := range []string{"Secret org/one-systemd-proxy", "Secret org/one-cluster-values", "ConfigMap org/one-cluster-values"} {
			t.Run(tt.name+"/"+object, func(t *testing.T) {
				w := newWorld(t)
				w.settle()
				switch i {
				case 0:
					tt.change(&w.held.SystemdProxy.ObjectMeta, &w.held.SystemdProxy.Immutable)
				case 1:
					tt.change(&w.held.Secret.ObjectMeta, &w.held.Secret.Immutable)
				case 2:
					tt.change(&w.held.ConfigMap.ObjectMeta, &w.held.ConfigMap.Immutable)
				}
				w.installation("HTTP_PROXY", other, "HTTPS_PROXY", other, "NO_PROXY", "a.test")
				action, err := w.plan()
				var notOurs *propagate.NotOursError
				if !errors.As(err, &notOurs) || notOurs.Object != object || err.Error() != "propagate: "+object+" "+tt.want {
					t.Errorf("got %v, want %s %s", err, object, tt.want)
				}
				if len(action.Events) != 1 || action.Events[0].Reason != propagate.ReasonNotOurs || action.Events[0].Message != err.Error() || action.After != time.Minute {
					t.Errorf("got Events %v and After %v, want the error's, and a minute", action.Events, action.After)
				}
				if names := w.apply(action); len(names) != 2 || slices.Contains(names, "update "+object) {
					t.Errorf("got %v, want the two others", names)
				}
			})
		}
	}
}

// A Secret of another type is not ours, whatever it says: some types make tokens.
func TestPlanForeignType(t *testing.T) {
	for _, object := range []func(*world) **corev1.Secret{func(w *world) **corev1.Secret { return &w.held.SystemdProxy }, func(w *world) **corev1.Secret { return &w.held.Secret }} {
		w := newWorld(t)
		w.settle()
		secret := *object(w)
		secret.Type = corev1.SecretTypeServiceAccountToken
		w.installation("HTTP_PROXY", other, "HTTPS_PROXY", other)
		action, err := w.plan()
		var notOurs *propagate.NotOursError
		if !errors.As(err, &notOurs) || notOurs.Object != "Secret org/"+secret.Name || notOurs.Foreign != "the type kubernetes.io/service-account-token" {
			t.Errorf("got %v, want an error about the type of %s", err, secret.Name)
		}
		if names := w.apply(action); len(names) != 2 || slices.Contains(names, "update Secret org/"+secret.Name) {
			t.Errorf("got %v, want the two others", names)
		}
	}
}

// What clusterctl move and a restore leave is the Cluster's again; an Event tells of what
// the Cluster does not own by its UID.
func TestPlanAdopts(t *testing.T) {
	tests := []struct {
		name   string
		change func(*world)
		want   []string
	}{
		{"moved: the Cluster and its references have another UID", func(w *world) {
			w.cluster.UID = "uid-two"
			for _, m := range []*metav1.ObjectMeta{&w.held.SystemdProxy.ObjectMeta, &w.held.Secret.ObjectMeta, &w.held.ConfigMap.ObjectMeta} {
				m.OwnerReferences[0].UID = "uid-two"
			}
		}, nil},
		{"restored: the UID is that of before", func(w *world) { w.cluster.UID = "uid-two" },
			[]string{"Secret org/one-systemd-proxy", "Secret org/one-cluster-values", "ConfigMap org/one-cluster-values"}},
		{"restored: there is no owner", func(w *world) { w.held.ConfigMap.OwnerReferences = nil }, []string{"ConfigMap org/one-cluster-values"}},
		{"paused", func(w *world) { w.cluster.UID, w.cluster.Paused = "uid-two", true }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			tt.change(w)
			action, err := w.plan()
			var told []string
			for _, e := range action.Events {
				object, _, _ := strings.Cut(e.Message, " is taken over")
				if told = append(told, object); e.Type != corev1.EventTypeNormal || e.Reason != propagate.ReasonAdopted {
					t.Errorf("got %v, want that it is taken over", e)
				}
			}
			if err != nil || !slices.Equal(told, tt.want) || len(action.Writes) != len(tt.want) {
				t.Errorf("got %v, %v, %v, want %v", told, action.Writes, err, tt.want)
			}
			w.apply(action)
			if again, _ := w.plan(); len(again.Events) > 0 {
				t.Errorf("got %v again", again.Events)
			}
		})
	}
}

// An override that was known and says nothing any more is no word for the installation's
// proxies: what was written stays until one says so.
func TestPlanKeepsOverride(t *testing.T) {
	overrides := map[string][]string{
		"direct": {"direct", "true"}, "its own proxy": {"HTTP_PROXY", other, "HTTPS_PROXY", other}, "a list": {"NO_PROXY", "mesh.test"},
		"credentials": {"credentials", "nowhere"}, "containerd": {"containerd", "installation"}, "values": {"values", "http_proxy: " + other},
	}
	for of, pairs := range overrides {
		for _, tt := range []struct {
			name   string
			change func(*world)
			text   string
		}{
			{"gone, as after clusterctl move", func(w *world) { w.held.Override = nil }, "is gone"},
			{"gone, with a new endpoint and password", func(w *world) {
				w.held.Override, w.cluster.Facts.ControlPlaneHosts = nil, []string{"192.0.2.1"}
				w.installation("HTTP_PROXY", other, "HTTPS_PROXY", other)
			}, "is gone"},
			{"gone, and one of ours", func(w *world) { w.held.Override, w.held.SystemdProxy = nil, nil }, "is gone"},
			{"gone, and the other of ours", func(w *world) { w.held.Override, w.held.Secret = nil, nil }, "is gone"},
			{"without its label", func(w *world) { w.held.Override, w.held.Unlabelled = nil, true }, "kubectl -n org label secret one-proxy-override "},
			{"wiped", func(w *world) { w.override() }, "sets nothing"},
			{"misspelt", func(w *world) { w.override("values", "gloval: {connectivity: {proxy: {httpProxy: '"+other+"'}}}") }, "sets nothing"},
			{"an indentation slip", func(w *world) { w.override("values", "proxy:\nhttp: "+other) }, "sets nothing"},
			{"empty values", func(w *world) { w.override("HTTP_PROXY", "", "NO_PROXY", "\n") }, "sets nothing"},
		} {
			t.Run(of+"/"+tt.name, func(t *testing.T) {
				w := newWorld(t)
				w.override(pairs...)
				w.settle()
				tt.change(w)
				for range 2 {
					action, err := w.plan()
					var source *propagate.SourceError
					if !errors.As(err, &source) || source.Secret != "org/one-proxy-override" || len(action.Writes) > 0 {
						t.Fatalf("got %v, %v, want no writes and an error about the override", action.Writes, err)
					}
					if len(action.Events) != 1 || action.Events[0].Reason != propagate.ReasonOverride || !strings.Contains(action.Events[0].Message, tt.text) || !strings.Contains(action.Events[0].Message, "stays") {
						t.Errorf("got %v, want an Event with %q", action.Events, tt.text)
					}
				}
				w.cluster.Facts.ControlPlaneHosts = []string{"178.170.32.59"}
				w.installation("HTTP_PROXY", proxy, "HTTPS_PROXY", proxy, "NO_PROXY", people)
				w.held.Unlabelled = false
				w.override("direct", "false")
				if _, err := w.settle(); err != nil || !w.got().equal(everywhere(proxy, golden)) {
					t.Errorf("got %v, %v, want the installation's once the override says so", w.got(), err)
				}
				w.held.Override = nil
				if action, err := w.plan(); err != nil || len(action.Writes)+len(action.Events) > 0 {
					t.Errorf("got %v, %v, want nothing of an override that set nothing", action, err)
				}
			})
		}
	}
}

// clusterctl move takes what the Cluster owns, and backups what has its label.
func TestPlanOwnsOverride(t *testing.T) {
	const update = "update Secret org/one-proxy-override"
	for _, tt := range []struct {
		name   string
		change func(*corev1.Secret)
		want   bool
	}{
		{"new", func(s *corev1.Secret) { delete(s.Labels, kubeconfigLabel); s.OwnerReferences = nil }, true},
		{"no label", func(s *corev1.Secret) { delete(s.Labels, kubeconfigLabel) }, true},
		{"another Cluster's label", func(s *corev1.Secret) { s.Labels[kubeconfigLabel] = "two" }, true},
		{"restored", func(s *corev1.Secret) { s.OwnerReferences[0].UID = "gone" }, true},
		{"another's", func(s *corev1.Secret) {
			s.OwnerReferences[0].Kind, s.Labels = "ExternalSecret", map[string]string{propagate.LabelOverride: ""}
		}, false},
		{"immutable", func(s *corev1.Secret) { s.OwnerReferences, s.Immutable = nil, new(bool); *s.Immutable = true }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.override("direct", "true", "values", "no_proxy: a.test")
			w.settle()
			data := maps.Clone(w.held.Override.Data)
			tt.change(w.held.Override)
			names, err := w.settle()
			if err != nil || !slices.Equal(names, []string{update}[:map[bool]int{true: 1}[tt.want]]) {
				t.Errorf("got %v, %v, want the override: %t", names, err, tt.want)
			}
			s := w.held.Override
			if owned := len(s.OwnerReferences) == 1 && s.OwnerReferences[0].UID == w.cluster.UID && s.OwnerReferences[0].Kind == "Cluster"; tt.want && (!owned || s.Labels[kubeconfigLabel] != "one") ||
				!maps.EqualFunc(s.Data, data, bytes.Equal) {
				t.Errorf("got %v", s)
			}
		})
	}
	w := newWorld(t)
	w.override("direct", "true")
	w.held.Override.OwnerReferences = nil
	if names, err := w.settle(); err != nil || !slices.Equal(names, append(slices.Clone(all), update)) {
		t.Errorf("got %v, %v, want what machines wait for first", names, err)
	}
}

func TestPlanKeepsForeignOwners(t *testing.T) {
	w := newWorld(t)
	w.settle()
	theirs := metav1.OwnerReference{APIVersion: "g/v1", Kind: "Cluster", Name: "one", UID: "x"}
	gone := metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "Cluster", Name: "one", UID: "gone"}
	w.held.Secret.OwnerReferences = []metav1.OwnerReference{theirs, gone}
	w.settle()
	if got := w.held.Secret.OwnerReferences; len(got) != 2 || got[0] != theirs || got[1].UID != w.cluster.UID {
		t.Errorf("got %v, want theirs, and ours instead of the one that is gone", got)
	}
	w.held.Secret.OwnerReferences[0], w.held.Secret.OwnerReferences[1] = w.held.Secret.OwnerReferences[1], theirs
	if names, _ := w.settle(); len(names) > 0 {
		t.Errorf("got %v for another order, want nothing", names)
	}
}

// The ConfigMap has the facts that the RFC shows.
func TestPlanFacts(t *testing.T) {
	w := newWorld(t)
	w.cluster.Facts.ServiceCIDRs = []string{"10.96.0.0/12", "fd00::/112"}
	w.config.ManagedBy, w.config.EnvSecret = "me", "proxy-env"
	w.settle()
	const want = `cluster:
  calico:
    CIDR: 100.96.0.0/11
  kubernetes:
    API:
      clusterIPRange: 10.96.0.0/12
    DNS:
      IP: 10.96.0.10
  proxy:
    noProxy: cluster.local,10.96.0.0/12,fd00::/112,100.96.0.0/11,178.170.32.59,` + people + `,svc,127.0.0.1,localhost
`
	if got := w.held.ConfigMap.Data["values"]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := string(w.held.Secret.Data["values"]); !strings.Contains(got, "name: proxy-env") || w.held.Secret.Labels[propagate.LabelManagedBy] != "me" {
		t.Errorf("got no reference to the Secret, or another label")
	}
	w.cluster.Facts = noproxy.Cluster{ServiceCIDRs: []string{"10.96.0.0/30"}}
	w.settle()
	if got := w.held.ConfigMap.Data["values"]; strings.Contains(got, "DNS") || strings.Contains(got, "calico") || !strings.Contains(got, "API") {
		t.Errorf("got\n%s\nwant no DNS", got)
	}
}
