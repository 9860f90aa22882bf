package bed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Missing returns what the bed needs and this machine lacks, each with what to
// do about it.
func Missing(ctx context.Context) []string {
	var missing []string
	if err := canUnshare(); err != nil {
		missing = append(missing, fmt.Sprintf("the right to make network namespaces (%v): run as root", err))
	}
	for _, p := range []struct{ name, from string }{
		{"ip", "the Debian package iproute2"},
		{"squid", "the Debian package squid-openssl"},
		{squidAuth, "the Debian package squid-openssl"},
		{"haproxy", "the Debian package haproxy"},
		{"tinyproxy", "the Debian package tinyproxy"},
		{"danted", "the Debian package dante-server"},
		{"microsocks", "the Debian package microsocks"},
		{"sshd", "the Debian package openssh-server"},
		{"ssh", "the Debian package openssh-client"},
		{"ssh-keygen", "the Debian package openssh-client"},
		{"curl", "the Debian package curl"},
		{"ncat", "the Debian package ncat"},
		{"nft", "the Debian package nftables"},
		{"wget", "the Debian package wget"},
		{"chromium", "the Debian package chromium"},
		{"perl", "the Debian package perl-base"},
		{"mount", "the Debian package mount"},
		{"unshare", "the Debian package util-linux"},
		{"nsenter", "the Debian package util-linux"},
		{"/lib/systemd/systemd", "the Debian package systemd"},
		{"cloud-init", "the Debian package cloud-init"},
		{"containerd", "the Debian package containerd"},
		{"prometheus", "the Debian package prometheus"},
		{"promtool", "the Debian package prometheus"},
		{"git", "the Debian package git"},
		{"java", "the Debian package default-jre-headless"},
		{"python3", "the Debian package python3"},
		{"bash", "the Debian package bash"},
		{"dash", "the Debian package dash"},
		{"docker", "the Debian package docker.io"},
	} {
		if _, err := exec.LookPath(programPath(p.name)); err != nil {
			missing = append(missing, fmt.Sprintf("%s: install %s, or run .ci/install", p.name, p.from))
		}
	}
	if version, err := runOutput(ctx, "", "squid", "-v"); err == nil && !strings.Contains(version, "--with-openssl") {
		missing = append(missing, "a squid with TLS: install the Debian package squid-openssl in place of squid")
	}
	return append(missing, missingBinaries()...)
}

func missingBinaries() []string {
	bin := os.Getenv(BinEnv)
	if bin == "" {
		return []string{BinEnv + " in the environment, the folder that internal/e2e/kube/build.sh prints: run .ci/e2e"}
	}
	var missing []string
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "etcd", "kubeadm", "kubectl"} {
		if _, err := exec.LookPath(filepath.Join(bin, name)); err != nil {
			missing = append(missing, fmt.Sprintf("%s in %s (%s): run .ci/e2e", name, bin, BinEnv))
		}
	}
	return missing
}

// canUnshare tries on a thread that nothing else will run on.
func canUnshare() error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends here
		result <- unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
	}()
	return <-result
}
