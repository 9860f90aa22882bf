package e2e

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// A replica reads EndpointSlices that are wrong: they have what is no replica
// and lack one that is. It trusts none of those, and no dial waits for them.
func testStaleSlices(t *testing.T, table *faultTable) {
	const here, there, unknown = "e2e/here", "e2e/there", "e2e/unknown"
	s := newSplit(t, table, "stale EndpointSlices", "a", "b", "c", "gone", "silent", "stranger", "web", "agents")
	s.target("agents")
	stranger := s.replica("stranger", &tunnel.Server{Authority: newAuthority(t), Peers: tunnel.StaticPeers{}})
	web := s.serveTLS("web")
	s.cut("a", "silent")
	if err := s.Lead(replicaPort, func(ctx context.Context) (net.Conn, error) {
		return s.Router.DialContext(ctx, "tcp", s.address("a"))
	}); err != nil {
		t.Fatal(err)
	}
	k := newSplitKube(s, "tunnel-partition-slices")
	k.setSlice("whole", "a", "b", "c")
	k.setSlice("stale", "a", "b", "router", "gone", "silent", "stranger", "web")
	a := s.replica("a", &tunnel.Server{Peers: k.slices("a", "stale")})
	b := s.replica("b", &tunnel.Server{Peers: k.slices("b", "whole")})
	c := s.replica("c", &tunnel.Server{Peers: k.slices("c", "whole")})
	s.agent("agents", here, &tunnel.Agent{}, "a")
	s.agent("agents", there, &tunnel.Agent{}, "b")
	s.agent("agents", unknown, &tunnel.Agent{}, "c")
	a.has(here, 1)
	b.has(there, 1)
	c.has(unknown, 1)
	a.meets("b")
	b.meets("a", "c")
	c.meets("a", "b")
	errs := a.rowErrors(s.addresses("gone", "stranger", "web"))
	s.tell("address of a replica that is gone", "`"+errs[s.address("gone")]+"`", 0)
	s.tell("address of a stranger, a replica of another authority", "`"+errs[s.address("stranger")]+"`", 0)
	s.tell("address of a stranger, another TLS server", "`"+errs[s.address("web")]+"`", 0)
	stranger.until("that it was left", func() bool { return len(stranger.refused) > 0 && len(stranger.peers) == 0 })
	if n := web.Load(); n != 0 {
		t.Errorf("a server that is no replica was told %d bytes", n)
	}
	a.sees(s.addresses("b", "gone", "silent", "stranger", "web")...) // and not itself
	s.tell("its own address, and another that leads to it", "both known as its own", 0)
	s.tell("dial, agent at a replica that the slice has", "works", a.echoes(there))
	s.tell("dial, agent at a replica that the slice lacks", "no agent", a.failsWith(unknown, tunnel.CodeNoAgent))
	s.tell("dial at a replica that the slice lacks, agent at one that reads it", "works", c.echoes(here))
	began := time.Now()
	k.setSlice("stale", "a", "b", "c")
	a.meets("c")
	s.tell("the slice catches up", "session with the new replica", time.Since(began))
	s.tell("dial then", "works", a.echoes(unknown))
	a.sees(s.addresses("b", "c")...)
}

// rowErrors waits until the fleet has an error for each of the addresses, and
// returns them.
func (r *replica) rowErrors(addresses []string) map[string]string {
	r.split.t.Helper()
	errs := map[string]string{}
	eventually(r.split.t, "errors of what is no replica", func(ctx context.Context) error {
		for _, row := range r.Fleet(ctx) {
			if row.Connected && slices.Contains(addresses, row.Address) {
				return bed.Stop(fmt.Errorf("it has a session with %+v", row))
			}
			errs[row.Address] = row.LastError
		}
		for _, address := range addresses {
			if errs[address] == "" {
				return fmt.Errorf("none of %s", address)
			}
		}
		return nil
	})
	return errs
}

// sees waits until the fleet is the replicas at these addresses.
func (r *replica) sees(want ...string) {
	r.split.t.Helper()
	slices.Sort(want)
	eventually(r.split.t, fmt.Sprintf("%s: a fleet of %q", r.name, want), func(ctx context.Context) error {
		var got []string
		for _, row := range r.Fleet(ctx) {
			if !row.Self {
				got = append(got, row.Address)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}

// serveTLS serves TLS with a certificate of nobody's, and by the protocol that
// replicas speak; it counts the bytes that it is told by who trusts it.
func (s *split) serveTLS(host string) *atomic.Int64 {
	s.t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{pki.NewCA("web").Server("causeway://server")},
		NextProtos: []string{"causeway-peer/1"}, ClientAuth: tls.RequestClientCert}
	l := listen(s.t, s.Host(host), s.address(host))
	told, ended := new(atomic.Int64), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(time.Minute))
			n, err := io.Copy(io.Discard, tls.Server(conn, config))
			conn.Close()
			if told.Add(n); err == nil && n == 0 {
				s.t.Error("a replica has left in order a server that is none")
			}
		}
	}()
	s.t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return told
}

// A splitKube is the bed's API server, at the router of a star, and a namespace
// of its own there.
type splitKube struct {
	*replicas
	split *split
	conns chan net.Conn
}

const kubePort = "6443"

func newSplitKube(s *split, namespace string) *splitKube {
	s.t.Helper()
	b := sharedBed(s.t)
	namespace += "-" + strings.ToLower(rand.Text()[:6]) // the test may run again
	if err := s.Lead(kubePort, func(ctx context.Context) (net.Conn, error) {
		return b.Network.API.DialContext(ctx, "tcp", b.Kube.Address())
	}); err != nil {
		s.t.Fatal(err)
	}
	config := b.Kube.Config()
	config.QPS = -1
	admin, err := clientset.NewForConfig(config)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := b.Kube.AddNamespace(s.t.Context(), namespace); err != nil {
		s.t.Fatal(err)
	}
	k := &splitKube{&replicas{bed: b, admin: admin, namespace: namespace}, s, make(chan net.Conn, 1000)}
	k.addServer(s.t)
	s.t.Cleanup(func() { // or HTTP/2 would keep them when the network is gone
		for len(k.conns) > 0 {
			(<-k.conns).Close()
		}
	})
	return k
}

// clientAt is a client with the servers' rights, on a replica's host.
func (k *splitKube) clientAt(host string) clientset.Interface {
	k.split.t.Helper()
	ns := k.split.Host(host)
	return k.clientBy(k.split.t, func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := ns.DialContext(ctx, network, net.JoinHostPort(bed.StarRouterIP, kubePort))
		if err != nil {
			return nil, err
		}
		select {
		case k.conns <- conn:
			return conn, nil
		default:
			return nil, errors.Join(errors.New("too many connections to the API server"), conn.Close())
		}
	})
}

func (k *splitKube) slices(host, service string) kubernetes.EndpointSlices {
	return kubernetes.EndpointSlices{Client: k.clientAt(host), Namespace: k.namespace, Service: service, Port: replicaPort}
}

// setSlice makes, or changes, the EndpointSlice of a Service.
func (k *splitKube) setSlice(service string, hosts ...string) {
	t := k.split.t
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("peers"), Port: ptr.To[int32](8443)}},
	}
	for _, host := range hosts {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{k.split.IP(host)}})
	}
	client := k.admin.DiscoveryV1().EndpointSlices(k.namespace)
	_, err := client.Create(t.Context(), slice, metav1.CreateOptions{})
	if err != nil {
		_, err = client.Update(t.Context(), slice, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
