package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/tunnel"
)

const sshFront = "127.0.0.1:2222"

// A host behind the tunnel is provisioned by SSH: the agent takes the public
// key over the control stream, and ssh runs a command with the private one.
func TestTunnelSSH(t *testing.T) {
	b := sharedBed(t)
	key, public := newKey(t)
	address := net.JoinHostPort(bed.HubIP, tunnelPort)
	h := newHub(t, &tunnel.Server{}, listen(t, b.Network.Hub, address))
	h.front(b.Network.Hub, sshFront, b.SSH.Address())
	startAgent(t, b.Network.API, agentInput{
		Invitation:     h.invite(address),
		Proxy:          []hop{{URL: b.Office.URL().String()}},
		Allow:          []string{b.SSH.Address()},
		AuthorizedKeys: b.SSH.AuthorizedKeys(),
	})
	forgetKeys(t, b)
	h.session(20 * time.Second)
	ssh := sshCommand(t, b, key)
	if out, err := b.Network.Hub.Run(t.Context(), ssh); err == nil || !strings.Contains(err.Error(), "Permission denied") {
		t.Fatalf("ssh before the key was handed over: got %q, %v, want Permission denied", out, err)
	}
	if err := h.Push(t.Context(), cluster, tunnel.Payload{Name: "authorized_keys", Data: []byte(public)}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out, err := b.Network.Hub.Run(t.Context(), ssh)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ssh printed %q, %v", out, time.Since(began))
	if want := bed.ProxyUser + " " + bed.APIIP + " 22\n"; out != want {
		t.Errorf("ssh: got %q, want %q", out, want)
	}
	wantBanners(t, h, b.SSH.Address())
}

// newKey makes a key that no sshd knows.
func newKey(t *testing.T) (path, public string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hub", "-f", path).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	b, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return path, string(b)
}

// forgetKeys empties the file of keys at the test's end.
func forgetKeys(t *testing.T, b *bed.Bed) {
	t.Cleanup(func() {
		if err := os.Truncate(b.SSH.AuthorizedKeys(), 0); err != nil {
			t.Error(err)
		}
	})
}

// sshCommand says who it is and which address of sshd it came to.
func sshCommand(t *testing.T, b *bed.Bed, key string) bed.Command {
	t.Helper()
	host, err := b.SSH.HostKey()
	if err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(known, []byte("[127.0.0.1]:2222 "+host+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	argv := []string{"ssh", "-F", "none", "-i", key, "-p", "2222"}
	for _, option := range []string{"BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "StrictHostKeyChecking=yes",
		"GlobalKnownHostsFile=none", "UserKnownHostsFile=" + known} {
		argv = append(argv, "-o", option)
	}
	return bed.Command{Argv: append(argv, bed.ProxyUser+"@127.0.0.1", `echo "$(id -un)" ${SSH_CONNECTION#* * }`)}
}

// wantBanners wants what sshd says first on each of many connections.
func wantBanners(t *testing.T, h *hub, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	input := throughInput{Address: address, Count: bannerCount, Parallel: bannerParallel}
	got := banners(ctx, h.Dialer(cluster).DialContext, input)
	t.Logf("%d banners, %d lost, %.1f s", got.Banners, len(got.Lost), got.Seconds)
	if got.Banners != bannerCount || len(got.Lost) > 0 {
		t.Errorf("got %d banners, want %d; lost: %q", got.Banners, bannerCount, got.Lost[:min(5, len(got.Lost))])
	}
}
