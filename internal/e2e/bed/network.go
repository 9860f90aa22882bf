package bed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The addresses of the bed, from the ranges that are reserved for
// documentation.
const (
	ClientIP   = "198.51.100.2"
	ProxyIP    = "198.51.100.1" // the proxies, as the client sees them
	ProxyAPIIP = "192.0.2.1"    // the proxies, as the API server sees them
	APIIP      = "192.0.2.10"
	HubProxyIP = "203.0.113.1" // the proxies, as the tunnel's server sees them
	HubIP      = "203.0.113.2" // the tunnel's server
	HubWebIP   = "203.0.113.3" // the same, for another listener on the same port

	HubManagementIP = "203.0.113.4" // the server for a management cluster's tunnels
	HubSpareIP      = "203.0.113.5" // another server
)

const (
	namePrefix   = "causeway-e2e-"
	namespaceDir = "/run/netns"
)

// A Namespace is a network namespace that `ip netns` knows by name.
type Namespace struct {
	Name string

	run *runner
}

// A Network is the four namespaces of the bed and the links between them.
type Network struct {
	Client, Proxy, API, Hub *Namespace

	name  string // the run's
	run   *runner
	count atomic.Int32 // of the namespaces that were made
}

// runName returns a name that no other run has: the process's id, by which a
// later run tells that this one is gone, and random digits.
func runName() string {
	return fmt.Sprintf("%s%d-%06x", namePrefix, os.Getpid(), rand.IntN(1<<24))
}

func newNetwork(ctx context.Context, name string, run *runner) (*Network, error) {
	n := &Network{name: name, run: run}
	if err := n.AddNamespaces(ctx, &n.Client, &n.Proxy, &n.API, &n.Hub); err != nil {
		return nil, err
	}
	if err := linkNamespaces(ctx, n.Client, "eth0", ClientIP+"/29", n.Proxy, ProxyIP+"/29"); err != nil {
		return nil, err
	}
	if err := linkNamespaces(ctx, n.Proxy, "eth1", ProxyAPIIP+"/24", n.API, APIIP+"/24"); err != nil {
		return nil, err
	}
	return n, linkNamespaces(ctx, n.Proxy, "eth2", HubProxyIP+"/29", n.Hub, HubIP+"/29",
		"addr add "+HubWebIP+"/29 dev eth0",
		"addr add "+HubManagementIP+"/29 dev eth0",
		"addr add "+HubSpareIP+"/29 dev eth0",
	)
}

// AddNamespaces makes namespaces of the run, which the watcher removes. One that was
// made is set on an error, too.
func (n *Network) AddNamespaces(ctx context.Context, made ...**Namespace) error {
	for _, ns := range made {
		*ns = &Namespace{Name: fmt.Sprintf("%s-%d", n.name, n.count.Add(1)), run: n.run}
		if err := (*ns).create(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Namespace) create(ctx context.Context) error {
	if err := runIP(ctx, "netns", "add", n.Name); err != nil {
		return err
	}
	if err := n.RunIP(ctx, "link set lo up"); err != nil {
		return err
	}
	// A new namespace may inherit forwarding from the host: the proxy's must
	// not become a router.
	return n.setForwarding("0")
}

// setForwarding makes the namespace a router by "1", and a host by "0".
func (n *Namespace) setForwarding(value string) error {
	return n.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0o644); err != nil {
			return fmt.Errorf("bed: forwarding: %w", err)
		}
		return nil
	})
}

// runNFT adds to the namespace's rules.
func (n *Namespace) runNFT(ctx context.Context, rules string) error {
	_, err := n.Run(ctx, Command{Argv: []string{programPath("nft"), "-f", "-"}, Stdin: strings.NewReader(rules + "\n")})
	return err
}

// addRouter makes a namespace that passes packets on, and has an address of its own.
func (n *Network) addRouter(ctx context.Context, router **Namespace, address string) error {
	if err := n.AddNamespaces(ctx, router); err != nil {
		return err
	}
	if err := (*router).setForwarding("1"); err != nil {
		return err
	}
	return (*router).RunIP(ctx, "addr add "+address+"/32 dev lo")
}

// linkNamespaces joins two namespaces by a veth pair, which is eth0 in b. Both ends are made inside, so that
// their names meet no interface of the host's. The address of IPv6 ends with " nodad" to be usable
// at once: nobody else can have it. Then more commands of ip run in b.
func linkNamespaces(ctx context.Context, a *Namespace, aDev, aAddr string, b *Namespace, bAddr string, more ...string) error {
	err := a.RunIP(ctx,
		"link add "+aDev+" type veth peer name eth0 netns "+b.Name,
		"addr add "+aAddr+" dev "+aDev,
		"link set "+aDev+" up",
	)
	if err != nil {
		return err
	}
	return b.RunIP(ctx, append([]string{"addr add " + bAddr + " dev eth0", "link set eth0 up"}, more...)...)
}

// RunIP runs commands of ip in the namespace.
func (n *Namespace) RunIP(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		if err := runIP(ctx, append([]string{"-n", n.Name}, strings.Fields(command)...)...); err != nil {
			return err
		}
	}
	return nil
}

func runIP(ctx context.Context, args ...string) error {
	_, err := runOutput(ctx, "", "ip", args...)
	return err
}

// Do runs fn on an OS thread that is inside the namespace. Goroutines that fn
// starts are outside.
func (n *Namespace) Do(fn func() error) error {
	return onOwnThread(func() error {
		f, err := os.Open(filepath.Join(namespaceDir, n.Name))
		if err != nil {
			return fmt.Errorf("bed: namespace: %w", err)
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("bed: enter namespace %s: %w", n.Name, err)
		}
		return fn()
	})
}

// onOwnThread runs fn on an OS thread that nothing else will run on.
func onOwnThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		result <- fn()
	}()
	return <-result
}

// DialContext dials from inside the namespace, until the bed is closed: an http.Transport
// goes on with a dial after its request has ended. The address is a literal one: a lookup
// would run outside.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.run.open, cancel)()
	var conn net.Conn
	err := n.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens inside the namespace, and so do the connections that the
// listener accepts: their goroutines may be outside.
func (n *Namespace) Listen(address string) (net.Listener, error) {
	var l net.Listener
	// A program that is being started holds what was closed just now, until it
	// runs.
	err := Poll(context.Background(), address+" to be free", func(context.Context) error {
		err := n.Do(func() (err error) {
			l, err = net.Listen("tcp", address)
			return err
		})
		if err != nil && !errors.Is(err, unix.EADDRINUSE) {
			return Stop(err)
		}
		return err
	})
	return l, err
}

// waitListening waits until something accepts connections at address.
func (n *Namespace) waitListening(ctx context.Context, p *Process, address string) error {
	return Poll(ctx, p.name+" to listen at "+address, func(ctx context.Context) error {
		if err := p.exitError(); err != nil {
			return Stop(err)
		}
		conn, err := n.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// removeNamespaces removes the namespaces whose names match.
func removeNamespaces(ctx context.Context, match func(name string) bool) error {
	entries, err := os.ReadDir(namespaceDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bed: list namespaces: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !match(e.Name()) {
			continue
		}
		err := runIP(ctx, "netns", "del", e.Name())
		if _, gone := os.Stat(filepath.Join(namespaceDir, e.Name())); !errors.Is(gone, fs.ErrNotExist) {
			errs = append(errs, err) // no other run has removed it
		}
	}
	return errors.Join(errs...)
}

// RemoveNamespaces removes network namespaces. A nil one is skipped.
func RemoveNamespaces(made ...*Namespace) error {
	return removeNamespaces(context.Background(), func(name string) bool {
		return slices.ContainsFunc(made, func(ns *Namespace) bool { return ns != nil && ns.Name == name })
	})
}

// isStale tells whether name, which runName made, belongs to a run whose process is gone.
func isStale(name string) bool {
	var pid int
	_, err := fmt.Sscanf(name, namePrefix+"%d-", &pid)
	return err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// removeStaleFolders removes the folders of runs whose process is gone.
func removeStaleFolders() (err error) {
	paths, _ := filepath.Glob(filepath.Join(os.TempDir(), namePrefix+"*"))
	for _, path := range paths {
		if isStale(filepath.Base(path)) {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}
