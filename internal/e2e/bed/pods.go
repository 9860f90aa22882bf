package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// The addresses of a Cluster's API server, and of the Service in front of it.
const (
	clusterIP = "10.1.0.1"
	// ServiceIP is the address of the Service kubernetes, at port 443.
	ServiceIP = "10.0.0.1"
)

// A Cluster is a kube-apiserver with hosts for pods, apart from the rest of the
// bed: each pod has an address of its own, and reaches the API server, the other
// pods and the Services.
type Cluster struct {
	Kube *Kube
	Node *Namespace // the API server's, where Services are, too
	Dir  string     // the API server's

	network *Network

	mu       sync.Mutex // guards the fields below
	pods     []*Namespace
	services []*proxytest.Server
}

// StartCluster starts one with more flags for kube-apiserver. It is to be
// stopped by Stop; its control plane ends with the bed at the latest.
func (b *Bed) StartCluster(ctx context.Context, name string, args ...string) (*Cluster, error) {
	c := &Cluster{network: b.Network, Dir: filepath.Join(b.Dir, name)}
	if err := c.start(ctx, b, name, args); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, b *Bed, name string, args []string) (err error) {
	if err := c.network.addRouter(ctx, &c.Node, clusterIP); err != nil {
		return err
	}
	if c.Kube, err = b.StartKube(ctx, c.Node, name, clusterIP, KubeOptions{Args: args}); err != nil {
		return err
	}
	return c.AddService(ctx, net.JoinHostPort(ServiceIP, "443"), func() string { return c.Kube.Address() })
}

// Stop ends the control plane and the Services, and removes the hosts. What
// runs there the caller has stopped.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.services {
		s.Close()
	}
	if c.Kube != nil {
		c.Kube.Stop()
	}
	return RemoveNamespaces(append(c.pods, c.Node)...)
}

// AddService forwards an address. target returns where each connection goes.
func (c *Cluster) AddService(ctx context.Context, address string, target func() string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("bed: service: %w", err)
	}
	if err := c.Node.RunIP(ctx, "addr replace "+host+"/32 dev lo"); err != nil {
		return err
	}
	l, err := c.Node.Listen(address)
	if err != nil {
		return fmt.Errorf("bed: service: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services = append(c.services, proxytest.Serve(l, func(ctx context.Context, conn net.Conn) {
		if to, err := c.Node.DialContext(ctx, "tcp", target()); err == nil {
			relay.Relay(ctx, conn, to)
		}
	}))
	return nil
}

// AddHost makes the host of a pod, and returns its address.
func (c *Cluster) AddHost(ctx context.Context) (*Namespace, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pod *Namespace
	if err := c.network.AddNamespaces(ctx, &pod); err != nil {
		return nil, "", err
	}
	c.pods = append(c.pods, pod)
	number := strconv.Itoa(len(c.pods))
	net4 := "10.1." + number
	return pod, net4 + ".2", linkNamespaces(ctx, c.Node, "pod"+number, net4+".1/30", pod, net4+".2/30", "route add default via "+net4+".1")
}
