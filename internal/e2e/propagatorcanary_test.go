package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// testCanary looks for every password that there was in all that the API server
// holds, and in all that the programs wrote.
func (p *propagation) testCanary(t *testing.T) {
	want := map[string][]string{overridePassword: {secretName("c0000-proxy-override")}, brokenPassword: {secretName("c0001-proxy-override")}}
	for _, old := range p.passwords {
		want[old] = nil
	}
	all := []string{"Secret " + propagatorBase + "/installation-proxy", secretName("foreign-cluster-values")}
	holds := func(password, cluster string) {
		want[password] = append(want[password], secretName(cluster+"-systemd-proxy"), secretName(cluster+"-cluster-values"))
	}
	want[p.password] = all
	for cluster := range p.clusters {
		holds(p.password, cluster)
	}
	holds(p.password, "c0000") // the override names one proxy of the two
	holds(overridePassword, "c0000")
	holds(p.passwords[len(p.passwords)-1], "c0001") // keeps what it had when its override was broken
	got, scanned := p.scanAll(t, slices.Collect(maps.Keys(want)))
	for password := range want {
		slices.Sort(want[password])
		slices.Sort(got[password])
		if !slices.Equal(got[password], want[password]) {
			t.Errorf("the password %.8s: got it in %q, want it in %q", password, got[password], want[password])
		}
	}
	if scanned["Event"] < 6 || scanned["ConfigMap"] < len(p.clusters) || scanned["Cluster"] < len(p.clusters) || scanned["ClusterRole"] < 1 {
		t.Errorf("got %v objects, too few to say anything", scanned)
	}
	t.Logf("scanned %v for %d passwords", scanned, len(want))
	p.scanLogs(t, slices.Collect(maps.Keys(want)))
}

func secretName(name string) string { return "Secret " + propagatedIn + "/" + name }

// scanAll returns in which objects the passwords are, and how many objects of
// each kind there are.
func (p *propagation) scanAll(t *testing.T, passwords []string) (found map[string][]string, scanned map[string]int) {
	t.Helper()
	found, scanned = map[string][]string{}, map[string]int{}
	for _, object := range listed(t, p.Config(), "") {
		scanned[object.GetKind()]++
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, password := range passwords {
			if leaksPassword(string(text), password) {
				found[password] = append(found[password], object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
			}
		}
	}
	return found, scanned
}

// scanLogs wants the programs to have told of what they did and of what was
// wrong, without a password.
func (p *propagation) scanLogs(t *testing.T, passwords []string) {
	t.Helper()
	var all strings.Builder
	for _, program := range p.logs {
		all.WriteString(program.Stdout() + program.Stderr())
	}
	for _, password := range passwords {
		if leaksPassword(all.String(), password) {
			t.Errorf("the password %.8s is in the log", password)
		}
	}
	for _, text := range []string{"c0001-proxy-override", "there is none; what was written before stays", `target="Secret ` + propagatedIn + "/c0000-systemd-proxy"} {
		if !strings.Contains(all.String(), text) {
			t.Errorf("the log has no %q", text)
		}
	}
	t.Logf("scanned %d bytes of %d logs", all.Len(), len(p.logs))
}
