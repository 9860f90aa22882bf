package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/proxyconfig"
)

// systemdBoot boots systemd as the first process of namespaces of its own, with
// the units in $1/units alone. It sees a cgroup of its own, and no network; it may
// write to $1, /run and that cgroup. What it has to say is in $1/log. It ends by
// itself, and when it hangs: nothing else would end it after a test's panic.
const systemdBoot = `
set -eu
dir=$1
mount --make-rprivate /
mkdir "$dir/cgroup"
mount -t cgroup2 cgroup2 "$dir/cgroup"
own=$dir/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/causeway-e2e-$$
mkdir "$own"
trap 'find "$own" -depth -type d -exec rmdir {} \;' EXIT
(
	sh -c 'echo $PPID' >"$own/cgroup.procs"
	exec timeout 300 unshare --cgroup --pid --fork --kill-child --mount-proc sh -euc '
		umount "$0/cgroup"
		mount -t tmpfs tmpfs /run
		mount -t tmpfs tmpfs /sys/fs/cgroup
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		touch "$0/log"
		mount --bind "$0/log" /dev/kmsg
		mount --bind /proc/sys /proc/sys
		mount -o remount,bind,ro /proc/sys
		mount --bind "$0" "$0"
		mount -o remount,bind,ro /
		exec env -i container=other SYSTEMD_UNIT_PATH="$0/units" /lib/systemd/systemd \
			--unit=default.target --log-target=kmsg --show-status=no
	' "$dir"
)
`

// Each service writes down its environment; the last one ends systemd.
const (
	systemdService = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/sh -c \"env -0 >%s/%s.env\"\n"
	systemdEnd     = "[Unit]\nDefaultDependencies=no\nAfter=%s\nSuccessAction=exit-force\nFailureAction=exit-force\n[Service]\nType=oneshot\nExecStart=/bin/true\n"
)

// systemd itself reads the drop-ins and starts services by them: what these have
// in their environment is what was configured.
func TestSystemdStartsServicesByTheDropIn(t *testing.T) {
	t.Parallel()
	dir, forms := sharedDir(t), passwordForms()
	var services []string
	for i, f := range forms {
		name := fmt.Sprintf("form%d", i)
		services = append(services, name+".service")
		text, err := f.config("proxy.test:3128").SystemdDropIn()
		if err != nil {
			t.Fatal(err)
		}
		path := kubeadmSpec(t, proxyconfig.StaticPodsNone, proxyconfig.Config{}, name).Files[0].Path
		dropIn, ok := strings.CutPrefix(path, "/etc/systemd/system/")
		if !ok {
			t.Fatalf("got the path %s, where systemd does not look", path)
		}
		writeFile(t, filepath.Join(dir, "units", dropIn), text)
		writeFile(t, filepath.Join(dir, "units", name+".service"), fmt.Sprintf(systemdService, dir, name))
	}
	all := strings.Join(services, " ")
	writeFile(t, filepath.Join(dir, "units/end.service"), fmt.Sprintf(systemdEnd, all))
	writeFile(t, filepath.Join(dir, "units/default.target"), "[Unit]\nDefaultDependencies=no\nWants=end.service "+all+"\n")
	boot := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--uts", "--ipc", "sh", "-c", systemdBoot, "sh", dir)
	out, err := boot.CombinedOutput()
	if ran, _ := filepath.Glob(filepath.Join(dir, "*.env")); err != nil && len(ran) == 0 {
		t.Logf("no systemd of one's own starts a service on this machine, and what it has in a service's environment is not looked at: %v\n%s", err, out)
		verifyUnits(t, filepath.Join(dir, "units"), services)
		return
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Fatalf("systemd: %v\n%s\n%s", err, out, log)
	}
	for i, f := range forms {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("form%d.env", i)))
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("%v\n%s", err, log)
		}
		if got, want := proxyVariables(string(text), "\x00"), environment(f.config("proxy.test:3128")); !maps.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", f.name, got, want)
		}
	}
}

// verifyUnits has systemd's own parser read the units and their drop-ins, which
// tells of what it does not understand, and nothing of the values. It is what is
// left where the kernel or a container's rules forbid mounts and cgroups.
func verifyUnits(t *testing.T, dir string, services []string) {
	t.Helper()
	for _, name := range services {
		verify := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", filepath.Join(dir, name))
		verify.Env = []string{"PATH=" + os.Getenv("PATH"), "SYSTEMD_UNIT_PATH=" + dir}
		if out, err := verify.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify %s: %v\n%s", name, err, out)
		}
	}
}

// proxyVariables are those of an environment that are a proxy's.
func proxyVariables(text, end string) map[string]string {
	vars := map[string]string{}
	for line := range strings.SplitSeq(text, end) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.HasSuffix(strings.ToLower(name), "_proxy") {
			vars[name] = value
		}
	}
	return vars
}
