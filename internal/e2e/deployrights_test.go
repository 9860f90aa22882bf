package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// auditPolicy has every request of a ServiceAccount in the log, once.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// rights are what each program may do, as kubectl lists it, beside what every
// ServiceAccount may: all of it stands here.
var rights = []struct {
	account, namespace string
	want               []string
}{
	{"tunnel-server", "tunnel-server", []string{
		"endpointslices.discovery.k8s.io [] [] [list watch]",
		"secrets [] [] [get list watch create update delete]",
	}},
	{"tunnel-server", "default", nil},
	{"tunnel-agent", "tunnel-agent", []string{"secrets [] [tunnel-agent-state] [get update]"}},
	{"tunnel-agent", "default", nil},
	{"proxy-injector", "proxy-injector", nil},
	{"proxy-propagator", "default", propagatorRights},
	{"proxy-propagator", "proxy-propagator", append([]string{
		"leases.coordination.k8s.io [] [] [create]",
		"leases.coordination.k8s.io [] [proxy-propagator-causeway] [get update]",
	}, propagatorRights...)},
	{"kubeconfig-provider", "default", providerRights},
	{"kubeconfig-provider", "kubeconfig-provider", append([]string{
		"leases.coordination.k8s.io [] [] [create]",
		"leases.coordination.k8s.io [] [kubeconfig-provider-causeway] [get update]",
	}, providerRights...)},
}

var providerRights = []string{
	"*.infrastructure.cluster.x-k8s.io [] [] [list watch]",
	"clusters.cluster.x-k8s.io [] [] [get list watch]",
	"clusters.cluster.x-k8s.io/status [] [] [patch]",
	"events [] [] [create patch]",
	"namespaces [] [] [list watch]",
	"programs.causewayproject.github.io [] [kubeconfig-provider] [narrow]",
	"secrets [] [] [get list watch create update delete]",
}

var propagatorRights = []string{
	"clusters.cluster.x-k8s.io [] [] [get list watch]",
	"configmaps [] [] [get list watch create update]",
	"events [] [] [create patch]",
	"programs.causewayproject.github.io [] [proxy-propagator] [narrow]",
	"secrets [] [] [get list watch create update]",
}

func (d *deploying) testRights(t *testing.T) {
	for _, tt := range rights {
		got := d.rightsOf(t, tt.account, tt.namespace)
		want := slices.Sorted(slices.Values(tt.want))
		if !slices.Equal(got, want) {
			t.Errorf("%s in %s: got\n%s\nwant\n%s", tt.account, tt.namespace, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// rightsOf are those of a program in a namespace that nobody else has.
func (d *deploying) rightsOf(t *testing.T, account, namespace string) []string {
	t.Helper()
	all := d.canI(t, account+":"+account, namespace)
	nobody := d.canI(t, "default:nobody", namespace)
	all = slices.DeleteFunc(all, func(line string) bool { return slices.Contains(nobody, line) })
	slices.Sort(all)
	return all
}

func (d *deploying) canI(t *testing.T, account, namespace string) (lines []string) {
	t.Helper()
	group := "system:serviceaccounts:" + strings.Split(account, ":")[0]
	out := d.kubectl(t, "", "auth", "can-i", "--list", "--no-headers", "-n", namespace, "--as=system:serviceaccount:"+account,
		"--as-group=system:serviceaccounts", "--as-group="+group, "--as-group=system:authenticated")
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// testAudit: of what the roles grant, each verb on each resource was used by the
// runs of the programs, and nothing was asked for that is not granted.
func (d *deploying) testAudit(t *testing.T) {
	used, refused := d.audited(t)
	if len(refused) > 0 {
		t.Errorf("forbidden, but asked for: %q", refused)
	}
	for _, base := range bases {
		granted := d.granted(t, base)
		for _, grant := range granted {
			switch fmt.Sprint(grant) {
			case "patch events": // client-go's recorder asks for it when an Event is told again, after an hour
				continue
			case "narrow programs.causewayproject.github.io": // a policy asks for it
				continue
			}
			if !slices.ContainsFunc(used[base], grant.covers) {
				t.Errorf("%s never used its right to %s", base, grant)
			}
		}
		t.Logf("%s: %d rights, %d kinds of requests: %q", base, len(granted), len(used[base]), used[base])
	}
}

// A grant is one verb on one resource.
type grant struct{ verb, group, resource string }

func (g grant) String() string {
	return strings.TrimSuffix(g.verb+" "+g.resource+"."+g.group, ".")
}

// covers takes a watch for a list, too: client-go's informers list where the API
// server does not know how to begin a watch with what there is.
func (g grant) covers(used grant) bool {
	return (g.verb == used.verb || g.verb == "list" && used.verb == "watch") && g.group == used.group && (g.resource == used.resource || g.resource == "*")
}

func (d *deploying) granted(t *testing.T, base string) (all []grant) {
	t.Helper()
	for _, o := range d.objects[base] {
		role := new(rbacv1.ClusterRole)
		if kind := o.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		if err := fromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					all = append(all, grant{verb, rule.APIGroups[0], resource})
				}
			}
		}
	}
	return all
}

// auditEvent is what is read here of audit.k8s.io/v1's Event.
type auditEvent struct {
	Verb        string
	User        struct{ Username string }
	ObjectRef   struct{ Resource, APIGroup, Subresource, Namespace string }
	Annotations map[string]string
}

// audited reads the log: what each program did, by its base, and what it was
// forbidden.
func (d *deploying) audited(t *testing.T) (used map[string][]grant, refused []string) {
	t.Helper()
	f, err := os.Open(d.audit)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	used = map[string][]grant{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.ObjectRef.Resource == "" {
			continue // discovery
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		g := grant{e.Verb, e.ObjectRef.APIGroup, resource}
		base := e.User.Username[strings.LastIndexByte(e.User.Username, ':')+1:]
		if e.Annotations["authorization.k8s.io/decision"] != "allow" {
			refused = append(refused, fmt.Sprintf("%s: %s in %s", base, g, e.ObjectRef.Namespace))
		} else if !slices.Contains(used[base], g) {
			used[base] = append(used[base], g)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return used, refused
}
