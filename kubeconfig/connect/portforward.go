package connect

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// PodPort is a port of a Pod.
type PodPort struct {
	// Namespace and Pod are where. Required.
	Namespace, Pod string
	// Port is from 1 to 65535. Required.
	Port int
}

// String returns namespace/pod:port.
func (p PodPort) String() string { return p.Namespace + "/" + p.Pod + ":" + strconv.Itoa(p.Port) }

// PortForward connects to a port of a Pod, through the API server and by the
// Client's route: what kubectl port-forward does, without the local listener. It
// is what the DialContext of an etcd or gRPC client wants. As kubectl does, it
// asks by WebSocket, and by SPDY where there is no such thing.
//
// ctx bounds the call and not the connection. It returns before the Pod's side
// was connected: the protocol has no word for that. A failure there is the
// error of a Read: see [PodConn]. Errors of the call are those of
// [Client.Exec]. The caller closes the connection; closing the Client cuts it.
func (c *Client) PortForward(ctx context.Context, to PodPort) (*PodConn, error) {
	if err := to.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect: port-forward: %w", err)
	}
	p, err := c.bridge.newLogin()
	if err != nil {
		return nil, err
	}
	running, cancel := c.bridge.untilClosed(ctx)
	defer cancel()
	conn, err := c.forwardUntil(running, p, to)
	if err != nil {
		err = p.explainError("port-forward", ctx, err)
		p.closeLater()
		return nil, err
	}
	if !c.bridge.group.Go(conn.run) {
		conn.streams.Close()
		p.close()
		return nil, errClosed
	}
	return conn, nil
}

// forwardUntil ends with ctx. The calls of client-go take no context. When their
// connection is cut, they may wait 30 seconds for an answer that can't come: they are
// left behind on their own goroutine.
func (c *Client) forwardUntil(ctx context.Context, p *login, to PodPort) (*PodConn, error) {
	type result struct {
		conn *PodConn
		err  error
	}
	done := make(chan result)
	go func() {
		conn, err := c.forwardPort(p, to)
		select {
		case done <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				conn.streams.Close()
			}
		}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		p.close()
		return nil, ctx.Err()
	}
}

func (c *Client) forwardPort(p *login, to PodPort) (*PodConn, error) {
	d, err := c.forwardDialer(p, to)
	if err != nil {
		return nil, err
	}
	streams, protocol, err := d.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	if protocol != portforward.PortForwardProtocolV1Name {
		streams.Close()
		return nil, fmt.Errorf("the server speaks the protocol %q instead of %q", protocol, portforward.PortForwardProtocolV1Name)
	}
	conn, err := newPodConn(p, to, streams)
	if err != nil {
		streams.Close()
		return nil, err
	}
	return conn, nil
}

func (c *Client) forwardDialer(p *login, to PodPort) (httpstream.Dialer, error) {
	config, u := c.configFor(p), c.podURL(to.Namespace, to.Pod, "portforward", nil)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	bySPDY := spdy.NewDialer(statusUpgrader{upgrader}, &http.Client{Transport: transport}, http.MethodPost, u)
	byWebSocket, err := portforward.NewSPDYOverWebsocketDialer(u, config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialer(byWebSocket, bySPDY, upgradeFailed), nil
}

// openStreams opens what one connection to a port needs.
func openStreams(streams httpstream.Connection, port int) (data, errs httpstream.Stream, err error) {
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	if errs, err = streams.CreateStream(header); err != nil {
		return nil, nil, fmt.Errorf("error stream: %w", err)
	}
	if err = errs.Close(); err != nil { // no data is sent on the error stream
		return nil, nil, fmt.Errorf("error stream: %w", err)
	}
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	if data, err = streams.CreateStream(header); err != nil {
		return nil, nil, fmt.Errorf("data stream: %w", err)
	}
	return data, errs, nil
}

func (p PodPort) check() error {
	err := checkPod("PodPort.", p.Namespace, p.Pod)
	if err == nil && (p.Port < 1 || p.Port > 65535) {
		return field.Errorf("PodPort.Port", "required, from 1 to 65535; got %d", p.Port)
	}
	return err
}

var _ net.Addr = podAddr{}

// podAddr is the address of a PodConn's other side.
type podAddr struct{ PodPort }

func (podAddr) Network() string { return "pod" }
