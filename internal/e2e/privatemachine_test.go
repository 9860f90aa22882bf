package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// controlPlaneStandIn stands for kubeadm on a machine that has no container images.
// The phases are kubeadm's own: certificates, kubeconfigs and manifests of static
// pods, and what init stores in the cluster and join takes from there. The stand-in
// plays only the kubelet: it runs the commands of the manifests as services. Of
// kube-controller-manager it runs the controller that signs the cluster's address for
// those who join; scheduler and Nodes are left out.
const controlPlaneStandIn = `#!/bin/sh
set -eu
exec >>%[1]s/kubeadm.log 2>&1
kubeadm=%[2]s/kubeadm

run_pod() { # NAME
	command=$(sed -n '/^  - command:/,/^    image:/s/^    - //p' /etc/kubernetes/manifests/$1.yaml |
		sed 's/^--controllers=.*/--controllers=bootstrap-signer-controller/' | tr '\n' ' ')
	printf '[Service]\nExecStart=%[2]s/%%s\nRestart=on-failure\nRestartSec=1\nTimeoutStopSec=15\n' "$command" >/etc/systemd/system/$1.service
	systemctl daemon-reload
	systemctl start $1.service
}

await_api() {
	until curl --silent --fail --max-time 2 --cacert /etc/kubernetes/pki/ca.crt "$1/readyz"; do sleep 0.2; done
}

case $1 in
init)
	for phase in "certs all" "kubeconfig all" "control-plane all"; do
		$kubeadm init phase $phase --config "$3"
	done
	run_pod kube-apiserver
	run_pod kube-controller-manager
	await_api https://%[3]s
	for phase in "upload-config all" "bootstrap-token"; do
		$kubeadm init phase $phase --config "$3" --kubeconfig /etc/kubernetes/super-admin.conf
	done
	;;
join)
	$kubeadm join phase control-plane-prepare all --config "$3"
	run_pod kube-apiserver
	await_api https://%[4]s:6443
	;;
esac
: >%[1]s/initialized
`

// A privateMachine is a machine of a site that is booted with the user data of a
// bootstrap provider.
type privateMachine struct {
	*machine
	hold *os.File
	wait func()
}

// bootMachine boots a machine of the site. Its image has the agent and the stand-in.
func bootMachine(t *testing.T, site *bed.Site, number int, agent string, userData []byte) *privateMachine {
	t.Helper()
	m := &privateMachine{machine: &machine{T: t, dir: sharedDir(t)}}
	ns, ip := site.Machine(number)
	endpoint, port := site.Endpoint()
	m.writeTargets()
	m.write("files/usr/local/bin/kubeadm", fmt.Sprintf(controlPlaneStandIn, m.dir, os.Getenv(bed.BinEnv), fmt.Sprintf("%s:%d", endpoint, port), ip))
	m.write("files/etc/hostname", fmt.Sprintf("machine-%d\n", number))
	program, err := os.ReadFile(agent)
	if err != nil {
		t.Fatal(err)
	}
	m.write("files/usr/local/bin/causeway-agent", string(program))
	for _, name := range []string{"kubeadm", "causeway-agent"} {
		if err := os.Chmod(filepath.Join(m.dir, "files/usr/local/bin", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.write("units/tunnel-agent.service.d/e2e.conf", "[Service]\nStandardOutput=append:"+m.dir+"/agent.log\nStandardError=inherit\n")
	m.seedUserData(string(userData))
	hold := filepath.Join(m.dir, "hold")
	if err := unix.Mkfifo(hold, 0o600); err != nil {
		t.Fatal(err)
	}
	if m.hold, err = os.OpenFile(hold, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	// The machine is shut down in order: services get SIGTERM. A busy systemd may not answer
	// at once. Cloud-init has it read its units again: after the folder of the units was
	// unmounted it would not know how to end.
	m.write("end", fmt.Sprintf("read -r _ <%s/hold\n"+
		"while [ \"$(systemctl show --property=ActiveState --value cloud-final.service)\" = activating ]; do sleep 1; done\n"+
		"until systemctl --no-block exit; do sleep 1; done\n", m.dir))
	m.write("units/end.service", ourTarget+"[Service]\nType=oneshot\nExecStart=/bin/sh "+m.dir+"/end\n")
	m.write("units/default.target", ourTarget+"Wants=multi-user.target end.service "+cloudInitUnits+"\n")
	m.wait = startSystemd(t, m.dir, ns)
	t.Cleanup(func() {
		m.end()
		if t.Failed() {
			t.Logf("machine %d:\n%s", number, m.logs())
		}
	})
	return m
}

// writeTargets writes the units that a machine has without our help.
func (m *machine) writeTargets() {
	m.Helper()
	for _, name := range []string{"sysinit.target", "basic.target", "network-online.target", "multi-user.target"} {
		m.write("units/"+name, ourTarget)
	}
	for _, name := range []string{"exit.target", "systemd-exit.service", "shutdown.target", "umount.target", "final.target"} {
		text, err := os.ReadFile("/lib/systemd/system/" + name)
		if err != nil {
			m.Fatal(err)
		}
		m.write("units/"+name, string(text))
	}
}

// end shuts the machine down, once.
func (m *privateMachine) end() {
	if m.hold == nil {
		return
	}
	fmt.Fprintln(m.hold)
	m.wait()
	m.hold.Close()
	m.hold = nil
}

// initialized waits until the stand-in for kubeadm has done its work.
func (m *privateMachine) initialized() {
	m.Helper()
	eventually(m.T, "kubeadm on the machine", func(context.Context) error {
		if _, err := os.Stat(filepath.Join(m.dir, "initialized")); err != nil {
			return errors.New(m.tailOf("kubeadm.log"))
		}
		return nil
	})
}

// agentSays waits until the agent has written the text.
func (m *privateMachine) agentSays(text string) {
	m.Helper()
	eventually(m.T, fmt.Sprintf("the agent to say %q", text), func(context.Context) error {
		if log := m.tailOf("agent.log"); !strings.Contains(log, text) {
			return errors.New(log)
		}
		return nil
	})
}

// logs are what the machine has to say.
func (m *privateMachine) logs() string {
	var all strings.Builder
	for _, name := range []string{"cloud.log", "kubeadm.log", "agent.log", "log"} {
		fmt.Fprintf(&all, "--- %s\n%s\n", name, m.tailOf(name))
	}
	return all.String()
}

func (m *machine) tailOf(name string) string {
	text, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-6<<10):])
}
