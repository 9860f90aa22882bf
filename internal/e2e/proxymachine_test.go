package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ignitiontypes "github.com/flatcar/ignition/config/v2_3/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/ignition"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/proxyconfig"
)

const (
	containerdDropIn   = "/etc/systemd/system/containerd.service.d/http-proxy.conf"
	kubeadmEnvironment = "/etc/kubernetes/kubeadm-proxy.sh"

	// ourTarget stands for one that would pull in much of the machine.
	ourTarget = "[Unit]\nDefaultDependencies=no\n"

	// ourService runs before cloud-init writes files.
	ourService = "[Unit]\nDefaultDependencies=no\nBefore=cloud-init-local.service\n[Service]\nType=exec\nExecStart=/bin/sleep infinity\n"

	// Started once, this one cannot be started again.
	brokenService = ourService + "ExecStartPre=/bin/mkdir /run/broken\n"

	// probeScript keeps the environment of each running service as $1.SERVICE.
	probeScript = `
for unit in %s; do
	pid=$(systemctl show --property=MainPID --value "$unit")
	[ "$pid" = 0 ] || cat "/proc/$pid/environ" >"$0.$1.$unit"
done
`
	// kubeadmStandIn stands for kubeadm: the phases of it that need no cluster are
	// kubeadm's.
	kubeadmStandIn = `#!/bin/sh
set -eu
env -0 >%[1]s/kubeadm.env
for phase in "control-plane all" "etcd local"; do
	%[2]s/kubeadm init phase $phase --config "$3"
done
cp -r /etc/kubernetes/manifests %[1]s
`
	// rollScript puts each drop-in into the place of containerd's, and plays the
	// commands, while a container runs.
	rollScript = `
set -eu
mkdir /run/rootfs
mount --bind / /run/rootfs
ctr run --detach --cpu-shares 0 --rootfs /run/rootfs living /bin/sleep infinity
ctr task ls >%[1]s/tasks.before
for dropin in %[1]s/dropins/*; do
	cp "$dropin" ` + containerdDropIn + `
	. %[1]s/commands
	sh %[1]s/probe "${dropin##*/}"
done
ctr task ls >%[1]s/tasks.after
`
	// cloudConfig has the modules that Cluster API's user data is for: the others
	// would resize the machine's disks.
	cloudConfig = `datasource_list: [NoCloud]
network: {config: disabled}
cloud_init_modules: [write-files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user]
system_info: {distro: debian, paths: {cloud_dir: /var/lib/cloud/, templates_dir: /etc/cloud/templates/}}
`
)

// A machine boots once, with Debian's containerd and, for each of the forms, a
// service that only runs. Its kubeadm gets the variables from its environment.
type machine struct {
	*testing.T
	dir   string
	forms []passwordForm
	spec  *bootstrapv1.KubeadmConfigSpec
	files []bootstrapv1.File
}

// formUnit is the service that gets the drop-in of form i.
func formUnit(i int) string { return fmt.Sprintf("form%d.service", i) }

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{T: t, dir: sharedDir(t), forms: machineForms(t)}
	c := m.forms[0].config(proxyAddress)
	// Of these, crio is missing, and idle does not run.
	m.spec = clusterAPISpec(t, kubeadmSpec(t, proxyconfig.StaticPodsEnvironment, c, "crio", "idle", "broken", "containerd"))
	m.files = resolveFiles(t, m.spec, machineSecret(t, c))
	var restarts []string
	for i, f := range m.forms {
		spec := clusterAPISpec(t, kubeadmSpec(t, proxyconfig.StaticPodsNone, c, formUnit(i)))
		m.files = append(m.files, resolveFiles(t, spec, machineSecret(t, f.config(proxyAddress)))...)
		restarts = append(restarts, spec.PreKubeadmCommands[1:]...)
	}
	// In front of the one that sources kubeadm's environment.
	m.spec.PreKubeadmCommands = slices.Insert(m.spec.PreKubeadmCommands, 1, restarts...)
	m.writeUnits()
	return m
}

func (m *machine) write(path, text string) {
	m.Helper()
	writeFile(m.T, filepath.Join(m.dir, path), text)
}

func (m *machine) read(path string) string {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, path))
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		cloud, _ := os.ReadFile(filepath.Join(m.dir, "cloud.log"))
		m.Fatalf("%v\n%s\n%s", err, log, cloud)
	}
	return string(text)
}

// debianUnit takes a unit of Debian's, its output to a file.
func (m *machine) debianUnit(name string) {
	m.Helper()
	text, err := os.ReadFile("/lib/systemd/system/" + name)
	if err != nil {
		m.Fatal(err)
	}
	m.write("units/"+name, string(text))
	m.write("units/"+name+".d/e2e.conf", "[Unit]\nStartLimitIntervalSec=0\n[Service]\nStandardOutput=append:"+m.dir+"/cloud.log\nStandardError=inherit\n")
}

func (m *machine) writeUnits() {
	m.Helper()
	services := []string{"containerd.service", "broken.service", "unasked.service"}
	for i := range m.forms {
		services = append(services, formUnit(i))
		m.write("units/"+formUnit(i), ourService)
	}
	m.debianUnit("containerd.service")
	m.write("units/broken.service", brokenService)
	m.write("units/unasked.service", ourService)
	m.write("units/idle.service", ourService)
	all := strings.Join(services, " ")
	for _, name := range []string{"sysinit.target", "basic.target", "network-online.target"} {
		m.write("units/"+name, ourTarget)
	}
	m.write("units/multi-user.target", ourTarget+"Wants="+all+"\nAfter=idle.service "+all+"\n")
	m.write("probe", fmt.Sprintf(probeScript, all+" idle.service"))
	m.write("files/usr/local/bin/kubeadm", fmt.Sprintf(kubeadmStandIn, m.dir, os.Getenv(bed.BinEnv)))
	if err := os.Chmod(filepath.Join(m.dir, "files/usr/local/bin/kubeadm"), 0o755); err != nil {
		m.Fatal(err)
	}
}

// boot runs the command after all that is named, and ends.
func (m *machine) boot(command, after string) {
	m.Helper()
	m.start(command, after)()
}

// start is boot, and returns what waits for the end.
func (m *machine) start(command, after string) (wait func()) {
	m.Helper()
	modes := "stat -c '%a %n' " + containerdDropIn + " " + kubeadmEnvironment + " >" + m.dir + "/modes"
	m.write("end", "set -eu\nsh "+m.dir+"/probe after\n"+modes+"\n"+command)
	m.write("units/end.service", ourTarget+"After="+after+"\nSuccessAction=exit-force\nFailureAction=exit-force\n[Service]\nType=oneshot\nExecStart=/bin/sh "+m.dir+"/end\n")
	m.write("units/default.target", ourTarget+"Wants=multi-user.target end.service "+after+"\n")
	return startSystemd(m.T, m.dir, nil)
}

// checkEnvironment compares what a process has.
func (m *machine) checkEnvironment(what, path string, want map[string]string) {
	m.Helper()
	if got := proxyVariables(m.read(path), "\x00"); !maps.Equal(got, want) {
		m.Errorf("%s: got %d variables, %.500s, want %d", what, len(got), fmt.Sprintf("%q", got), len(want))
	}
}

// checkProxy checks what all has the variables in the end.
func (m *machine) checkProxy() {
	m.Helper()
	want := environment(m.forms[0].config(proxyAddress))
	if len(want) != 6 {
		m.Fatalf("got %d variables", len(want))
	}
	m.checkEnvironment("containerd", "probe.after.containerd.service", want)
	m.checkEnvironment("kubeadm", "kubeadm.env", want)
	for i, f := range m.forms {
		m.checkEnvironment(f.name, "probe.after."+formUnit(i), environment(f.config(proxyAddress)))
	}
	m.checkEnvironment("a service that nobody names", "probe.after.unasked.service", map[string]string{})
	if _, err := os.Stat(filepath.Join(m.dir, "probe.after.idle.service")); err == nil {
		m.Error("a service that did not run was started")
	}
	pods := readManifests(m.T, filepath.Join(m.dir, "manifests"))
	for _, pod := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if !maps.Equal(pods[pod], want) {
			m.Errorf("%s: got %d variables, want %d", pod, len(pods[pod]), len(want))
		}
	}
	if got, want := m.read("modes"), "600 "+containerdDropIn+"\n600 "+kubeadmEnvironment+"\n"; got != want {
		m.Errorf("got the modes\n%swant\n%s", got, want)
	}
}

// seedCloudInit renders the user data as Cluster API does.
func (m *machine) seedCloudInit() {
	m.Helper()
	cluster, init := kubeadmConfigs(m.T, m.spec, newKubeadm)
	data, err := cloudinit.NewInitControlPlane(&cloudinit.ControlPlaneInput{
		BaseUserData:         cloudinit.BaseUserData{AdditionalFiles: m.files, PreKubeadmCommands: m.spec.PreKubeadmCommands},
		ClusterConfiguration: cluster, InitConfiguration: init,
	})
	if err != nil {
		m.Fatal(err)
	}
	m.seedUserData(string(data))
}

// seedUserData gives user data to Debian's cloud-init, whose units are cloudInitUnits.
func (m *machine) seedUserData(data string) {
	m.Helper()
	m.write("files/etc/cloud/cloud.cfg", cloudConfig)
	m.write("files/var/lib/cloud/seed/nocloud/meta-data", "instance-id: prod-1\nlocal-hostname: prod-1\n")
	m.write("files/var/lib/cloud/seed/nocloud/user-data", data)
	for _, name := range []string{"cloud-init-local.service", "cloud-init.service", "cloud-config.service", "cloud-final.service"} {
		m.debianUnit(name)
	}
	m.write("units/cloud-config.target", ourTarget+"Wants=cloud-init-local.service cloud-init.service\nAfter=cloud-init-local.service cloud-init.service\n")
}

const cloudInitUnits = "cloud-init.service cloud-final.service"

// Debian's cloud-init makes a machine of what Cluster API renders for it: it writes
// the files after systemd has loaded the units, and runs the commands at the end.
// Before these, and so without them, nothing has a proxy. A machine that lives is
// changed by the same commands, and its containers live on.
func TestMachineByCloudInit(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.seedCloudInit()
	m.write("units/before.service", ourTarget+"After=multi-user.target cloud-init.service\nBefore=cloud-final.service\n[Service]\nType=oneshot\nExecStart=/usr/bin/test -s "+
		containerdDropIn+"\nExecStart=/bin/sh "+m.dir+"/probe before\n")
	// containerd goes through all forms, also those that charts would misread.
	all := append(passwordForms(), listForms()...)
	for i, f := range all {
		dropIn, err := f.config(proxyAddress).SystemdDropIn()
		if err != nil {
			t.Fatal(err)
		}
		m.write(fmt.Sprintf("dropins/%d", i), dropIn)
	}
	m.write("commands", strings.Join(kubeadmSpec(t, proxyconfig.StaticPodsNone, proxyconfig.Config{}).PreKubeadmCommands, "\n")+"\n")
	m.boot(fmt.Sprintf(rollScript, m.dir), "before.service "+cloudInitUnits)

	m.checkEnvironment("containerd, before the commands", "probe.before.containerd.service", map[string]string{})
	for i, f := range m.forms {
		m.checkEnvironment(f.name+", before the commands", "probe.before."+formUnit(i), map[string]string{})
	}
	m.checkProxy()
	if before, after := m.read("tasks.before"), m.read("tasks.after"); before != after || !strings.Contains(after, "RUNNING") {
		t.Errorf("a container does not live through the restarts: got\n%swant\n%s", after, before)
	}
	for i, f := range all {
		m.checkEnvironment("containerd: "+f.name, fmt.Sprintf("probe.%d.containerd.service", i), environment(f.config(proxyAddress)))
	}
}

// A machine that Ignition makes has the files before it boots. Cluster API's
// script ends at the first command that fails: kubeadm runs nevertheless.
func TestMachineByIgnition(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	cluster, init := kubeadmConfigs(t, m.spec, newKubeadm)
	data, _, err := ignition.NewInitControlPlane(&ignition.ControlPlaneInput{ControlPlaneInput: &cloudinit.ControlPlaneInput{
		BaseUserData:         cloudinit.BaseUserData{AdditionalFiles: m.files, PreKubeadmCommands: m.spec.PreKubeadmCommands},
		ClusterConfiguration: cluster, InitConfiguration: init,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for path, f := range ignitionFiles(t, data) {
		m.write("files"+path, f.text)
		if err := os.Chmod(filepath.Join(m.dir, "files", path), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	var config ignitiontypes.Config
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	for _, unit := range config.Systemd.Units {
		m.write("units/"+unit.Name, unit.Contents)
	}
	m.boot("", "kubeadm.service")
	m.checkProxy()
}

// An ignitionFile is a file that Ignition writes before a machine boots.
type ignitionFile struct {
	text string
	mode os.FileMode
}

// ignitionFiles returns the files of a configuration by their paths.
func ignitionFiles(t *testing.T, data []byte) map[string]ignitionFile {
	t.Helper()
	var config ignitiontypes.Config
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	files := map[string]ignitionFile{}
	for _, f := range config.Storage.Files {
		source, ok := strings.CutPrefix(f.Contents.Source, "data:,")
		text, err := url.PathUnescape(source)
		if !ok || err != nil || f.Mode == nil {
			t.Fatalf("%s: got %.100s, %v", f.Path, f.Contents.Source, err)
		}
		files[f.Path] = ignitionFile{text: text, mode: os.FileMode(*f.Mode)}
	}
	return files
}

// joinScripts are the scripts in which a machine runs the commands and kubeadm,
// when it joins: cloud-init's runcmd is one for sh, Ignition's one for bash.
func joinScripts(t *testing.T, commands []string) map[string]string {
	t.Helper()
	scripts := map[string]string{}
	base := func() cloudinit.BaseUserData { return cloudinit.BaseUserData{PreKubeadmCommands: commands} }
	for name, render := range map[string]func() ([]byte, error){
		"cloud-init, worker": func() ([]byte, error) { return cloudinit.NewNode(&cloudinit.NodeInput{BaseUserData: base()}) },
		"cloud-init, control plane": func() ([]byte, error) {
			return cloudinit.NewJoinControlPlane(&cloudinit.ControlPlaneJoinInput{BaseUserData: base()})
		},
	} {
		text, err := render()
		if err != nil {
			t.Fatal(err)
		}
		var data struct{ Runcmd []string }
		if err := yaml.Unmarshal(text, &data); err != nil {
			t.Fatal(err)
		}
		scripts[name] = "#!/bin/sh\n" + strings.Join(data.Runcmd, "\n") + "\n"
	}
	for name, render := range map[string]func() ([]byte, string, error){
		"Ignition, worker": func() ([]byte, string, error) {
			return ignition.NewNode(&ignition.NodeInput{NodeInput: &cloudinit.NodeInput{BaseUserData: base()}})
		},
		"Ignition, control plane": func() ([]byte, string, error) {
			return ignition.NewJoinControlPlane(&ignition.ControlPlaneJoinInput{ControlPlaneJoinInput: &cloudinit.ControlPlaneJoinInput{BaseUserData: base()}})
		},
	} {
		text, _, err := render()
		if err != nil {
			t.Fatal(err)
		}
		for path, f := range ignitionFiles(t, text) {
			if path == "/etc/kubeadm.sh" {
				scripts[name] = f.text
			}
		}
	}
	return scripts
}

// The commands and kubeadm are one shell, so kubeadm that joins a cluster has the
// variables, too.
func TestKubeadmJoinsWithTheVariables(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	for _, name := range []string{"systemctl", "mv", "mkdir"} { // not on the machine of the test
		writeFile(t, filepath.Join(dir, "bin", name), "#!/bin/sh\n")
	}
	writeFile(t, filepath.Join(dir, "bin/kubeadm"), "#!/bin/sh\n[ \"$1\" = join ] && env -0 >"+dir+"/env\nexit 1\n")
	for _, name := range []string{"systemctl", "mv", "mkdir", "kubeadm"} {
		if err := os.Chmod(filepath.Join(dir, "bin", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	commands := kubeadmSpec(t, proxyconfig.StaticPodsEnvironment, proxyconfig.Config{}).PreKubeadmCommands
	commands[len(commands)-1] = strings.ReplaceAll(commands[len(commands)-1], kubeadmEnvironment, dir+"/script")
	scripts := joinScripts(t, commands)
	if len(scripts) != 4 {
		t.Fatalf("got %d scripts", len(scripts))
	}
	forms := machineForms(t)
	for name, script := range scripts {
		writeFile(t, filepath.Join(dir, "join"), script)
		shell, _, _ := strings.Cut(strings.TrimPrefix(script, "#!"), "\n")
		for _, f := range forms {
			c := f.config(proxyAddress)
			writeFile(t, filepath.Join(dir, "script"), string(machineSecret(t, c)[proxyconfig.KubeadmKey]))
			os.Remove(filepath.Join(dir, "env"))
			join := exec.CommandContext(t.Context(), shell, filepath.Join(dir, "join"))
			join.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")}
			out, _ := join.CombinedOutput() // kubeadm fails
			got, err := os.ReadFile(filepath.Join(dir, "env"))
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			if got, want := proxyVariables(string(got), "\x00"), environment(c); !maps.Equal(got, want) {
				t.Errorf("%s: %s: got %d variables, want %d", name, f.name, len(got), len(want))
			}
		}
	}
}
