package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// The addresses of a Site; each has them to itself.
const (
	siteIP   = "172.31.0.1" // of the squid, the load balancer and the etcd
	siteEtcd = "2379"

	// SiteMachines is how many machines a Site has room for.
	SiteMachines = 2
)

// A Site is a private network of machines. They reach each other, etcd, the load
// balancer in front of their API servers, and a squid with a password. The squid
// is the only way out: the machines' default route leads to its host, which passes no
// packets on. Nothing leads in.
type Site struct {
	Proxy  *Proxy
	EtcdCA *pki.CA // signs etcd's certificate and those of its clients

	gate     *Namespace
	dir, bin string
	machines [SiteMachines]*Namespace
	balance  *Process
	etcd     *Process
}

// AddSite makes a site whose squid reaches the Services of the cluster. The caller
// stops it before the cluster.
func (c *Cluster) AddSite(ctx context.Context, name string) (*Site, error) {
	gate, _, err := c.AddHost(ctx)
	if err != nil {
		return nil, err
	}
	s := &Site{EtcdCA: pki.NewCA("etcd-ca"), gate: gate, dir: c.Dir + "-" + name, bin: c.Kube.bin}
	if err := s.start(ctx, c.network); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Endpoint returns the host and the port of the load balancer.
func (s *Site) Endpoint() (host string, port int32) { return siteIP, APIPort }

// EtcdURL returns the address of etcd.
func (s *Site) EtcdURL() string { return "https://" + net.JoinHostPort(siteIP, siteEtcd) }

// Machine returns the namespace of a machine and its address; number is less than
// SiteMachines.
func (s *Site) Machine(number int) (*Namespace, string) {
	return s.machines[number], machineIP(number)
}

func machineIP(number int) string { return "172.31.0." + strconv.Itoa(11+number) }

// AwaitMachine waits until the load balancer leads to the API server of a machine.
func (s *Site) AwaitMachine(ctx context.Context, number int) error {
	what := fmt.Sprintf("machine%d", number+1)
	return Poll(ctx, "the load balancer to lead to "+what, func(context.Context) error {
		lines, err := logLines(s.balance.log)
		if err != nil {
			return Stop(err)
		}
		up := false
		for _, line := range lines {
			if strings.Contains(line, "Server api/"+what+" is ") {
				up = strings.Contains(line, " is UP")
			}
		}
		if !up {
			return fmt.Errorf("it says %q", lines)
		}
		return nil
	})
}

// Stop ends what runs at the gate, and removes the machines' namespaces. What
// runs there the caller has stopped.
func (s *Site) Stop() error {
	s.balance.Stop()
	s.etcd.Stop()
	s.Proxy.Stop()
	return RemoveNamespaces(s.machines[:]...)
}

func (s *Site) start(ctx context.Context, n *Network) error {
	if err := s.linkMachines(ctx, n); err != nil {
		return err
	}
	if err := s.writeConfig(); err != nil {
		return err
	}
	name := filepath.Base(s.dir)
	s.Proxy = newSquid(proxyHost{ns: s.gate, name: name + "-", dir: s.dir}, "squid")
	s.Proxy.url = proxyURL("http", siteIP, squidPort)
	return errors.Join(s.Proxy.startSquid(ctx, "office.conf", map[string]string{}), s.startEtcd(name), s.startBalance(name))
}

// linkMachines joins the machines and the gate by a switch.
func (s *Site) linkMachines(ctx context.Context, n *Network) error {
	if err := s.gate.RunIP(ctx, "link add site type bridge", "addr add "+siteIP+"/24 dev site", "link set site up"); err != nil {
		return err
	}
	for number := range s.machines {
		if err := n.AddNamespaces(ctx, &s.machines[number]); err != nil {
			return err
		}
		machine, dev := s.machines[number], "machine"+strconv.Itoa(number)
		err := s.gate.RunIP(ctx, "link add "+dev+" type veth peer name eth0 netns "+machine.Name, "link set "+dev+" master site up")
		if err != nil {
			return err
		}
		err = machine.RunIP(ctx, "addr add "+machineIP(number)+"/24 dev eth0", "link set eth0 up",
			"route add default via "+siteIP) // which passes nothing on
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) writeConfig() error {
	values := map[string]string{"address": net.JoinHostPort(siteIP, strconv.Itoa(APIPort))}
	for number := range SiteMachines {
		values[fmt.Sprintf("machine%d", number+1)] = net.JoinHostPort(machineIP(number), strconv.Itoa(APIPort))
	}
	return writeFiles(s.dir, 0o755, map[string]string{
		"etcd-ca.crt": string(s.EtcdCA.CertPEM()),
		"balance.cfg": readConfig("site.cfg", values),
	})
}

func (s *Site) startEtcd(name string) (err error) {
	cert, key, err := writePair(s.dir, "etcd", s.EtcdCA.Server(siteIP))
	if err != nil {
		return err
	}
	s.etcd, err = s.gate.start(name+"-etcd", filepath.Join(s.bin, "etcd"),
		"--data-dir="+filepath.Join(s.dir, "etcd"),
		"--listen-client-urls="+s.EtcdURL(),
		"--advertise-client-urls="+s.EtcdURL(),
		"--cert-file="+cert, "--key-file="+key, "--client-cert-auth", "--trusted-ca-file="+filepath.Join(s.dir, "etcd-ca.crt"),
		"--listen-peer-urls=http://127.0.0.1:0",
		"--unsafe-no-fsync",
		"--log-level=warn",
	)
	return err
}

func (s *Site) startBalance(name string) (err error) {
	s.balance, err = s.gate.start(name+"-balance", programPath("haproxy"), "-db", "-f", filepath.Join(s.dir, "balance.cfg"))
	return err
}
