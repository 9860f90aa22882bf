package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// systemdBoot boots systemd as the first process of namespaces of its own, on a
// copy of the machine's files that it may change: it reads only the units in
// $1/units, which are its /etc/systemd/system, and finds the files of $1/files, and
// the folder $2, but nothing of an agent that ran on the host. It sees a cgroup of
// its own, and no network but that of its namespace. What it has to say is in $1/log.
// It ends by itself, and when it hangs: nothing else would end it after a test's panic.
const systemdBoot = `
set -eu
dir=$1
mount --make-rprivate /
mkdir -p "$dir/cgroup" "$dir/layers" "$dir/files"
mount -t cgroup2 cgroup2 "$dir/cgroup"
own=$dir/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/causeway-e2e-$$
mkdir "$own"
trap 'find "$own" -depth -type d -exec rmdir {} \;' EXIT
(
	sh -c 'echo $PPID' >"$own/cgroup.procs"
	exec timeout --signal=KILL 900 unshare --cgroup --pid --fork --kill-child --mount-proc sh -euc '
		umount "$0/cgroup"
		touch "$0/log"
		mount -t tmpfs tmpfs "$0/layers"
		cd "$0/layers"
		mkdir upper work root
		mount -t overlay overlay -o "lowerdir=/,upperdir=$0/layers/upper,workdir=$0/layers/work" root
		cd root
		for dir in /proc /dev /sys; do mount --rbind "$dir" ".$dir"; done
		mount -t tmpfs tmpfs run
		mount -t tmpfs tmpfs sys/fs/cgroup
		mount -t cgroup2 cgroup2 sys/fs/cgroup
		mount --bind "$0/log" dev/kmsg
		mount --bind proc/sys proc/sys
		mount -o remount,bind,ro proc/sys
		mkdir -p ".$0" ".$1" etc/systemd/system
		mount --bind "$0" ".$0"
		mount --bind "$1" ".$1"
		mount --bind "$0/units" etc/systemd/system
		rm -rf var/lib/tunnel-agent
		cp -a "$0/files/." .
		pivot_root . mnt
		cd /
		umount -l /mnt
		exec env -i container=other SYSTEMD_UNIT_PATH=/etc/systemd/system /lib/systemd/systemd \
			--unit=default.target --log-target=kmsg --show-status=no
	' "$dir" "$2"
)
`

// startSystemd returns what waits until a unit ends systemd. A machine without a
// network namespace has no network.
func startSystemd(t *testing.T, dir string, network *bed.Namespace) (wait func()) {
	t.Helper()
	argv := []string{"unshare", "--net"}
	if network != nil {
		argv = []string{"nsenter", "--net=/run/netns/" + network.Name, "unshare"}
	}
	argv = append(argv, "--mount", "--uts", "--ipc", "sh", "-c", systemdBoot, "sh", dir, os.Getenv(bed.BinEnv))
	boot := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...)
	var out bytes.Buffer
	boot.Stdout, boot.Stderr = &out, &out
	boot.WaitDelay = 10 * time.Second // for who holds the output
	if err := boot.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := boot.Wait(); err != nil {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("systemd: %v\n%s\n%s", err, &out, log)
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
