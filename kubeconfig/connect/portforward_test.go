package connect_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

func podPort(port int) connect.PodPort {
	return connect.PodPort{Namespace: "default", Pod: "etcd-0", Port: port}
}

// forwarded calls f with a connection by each protocol.
func forwarded(t *testing.T, port int, f func(*testing.T, *kubelet, *connect.Client, *connect.PodConn)) {
	for protocol, webSocket := range protocols {
		t.Run(protocol, func(t *testing.T) {
			api := newAPIServer(t)
			k := newKubelet(t, api, webSocket)
			c := overDialer(t, api)
			ctx, cancel := context.WithCancel(t.Context())
			conn, err := c.PortForward(ctx, podPort(port))
			if err != nil {
				t.Fatal(err)
			}
			cancel() // it bounds the call, and not the connection
			defer conn.Close()
			f(t, k, c, conn)
			if by, asks := k.seen(); !cmp.Equal(by, []string{protocol}) || !cmp.Equal(asks, []string{"etcd-0/portforward"}) {
				t.Errorf("asked for %v by %v, want %s", asks, by, protocol)
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	forwarded(t, 7, func(t *testing.T, k *kubelet, _ *connect.Client, conn *connect.PodConn) {
		if got := conn.RemoteAddr().String(); got != "default/etcd-0:7" {
			t.Errorf("got the address %s", got)
		}
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Write(sent)
			failed <- err
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(conn, got); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err != nil || !bytes.Equal(got, sent) {
			t.Errorf("got other bytes, or %v", err)
		}
		conn.SetReadDeadline(time.Unix(1, 0))
		if _, err := conn.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a timeout", err)
		}
		conn.Close()
		if err := <-k.ended; err != nil {
			t.Errorf("the Pod saw %v, want an end", err)
		}
		if _, err := conn.Read(got); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read after Close: got %v", err)
		}
		if _, err := conn.Write(got); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Close: got %v", err)
		}
	})
}

func TestPortForwardHalfClose(t *testing.T) {
	forwarded(t, 9, func(t *testing.T, _ *kubelet, _ *connect.Client, conn *connect.PodConn) {
		if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: got %v, want EPIPE", err)
		}
		got, err := io.ReadAll(conn)
		if string(got) != "1048576" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// Close leaves nothing behind of what was written.
func TestPortForwardCloseDelivers(t *testing.T) {
	forwarded(t, 9, func(t *testing.T, k *kubelet, _ *connect.Client, conn *connect.PodConn) {
		if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if got := <-k.taken; got != 1<<20 {
			t.Errorf("the Pod got %d bytes, want %d", got, 1<<20)
		}
	})
}

func TestPortForwardEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		port int
		data string
		want func(error) bool
	}{
		{"in order", 17, "quote of the day", func(err error) bool { return err == nil }},
		{"cut", 13, "half", func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"refused", 1, "", func(err error) bool {
			var pe *connect.PodError
			return errors.As(err, &pe) && pe.Addr == podPort(1) && strings.Contains(pe.Text, "connection refused")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			forwarded(t, test.port, func(t *testing.T, _ *kubelet, _ *connect.Client, conn *connect.PodConn) {
				conn.Write([]byte("x")) // it may have ended by now
				got, err := io.ReadAll(conn)
				if string(got) != test.data || !test.want(err) {
					t.Errorf("got %q, %v", got, err)
				}
				if _, err := conn.Write([]byte("x")); err == nil {
					t.Error("Write after the end: no error")
				}
			})
		})
	}
}

// Closing the Client cuts connections, and waits for their goroutines.
func TestPortForwardClientCloses(t *testing.T) {
	forwarded(t, 19, func(t *testing.T, k *kubelet, c *connect.Client, conn *connect.PodConn) {
		<-k.waiting
		c.Close()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want net.ErrClosed", err)
		}
		if _, err := c.PortForward(t.Context(), podPort(7)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("PortForward after Close: got %v", err)
		}
	})
}

func TestPortForwardInvalid(t *testing.T) {
	api := newAPIServer(t)
	c := overDialer(t, api)
	for field, to := range map[string]connect.PodPort{
		"PodPort.Namespace": {Namespace: "a/b", Pod: "p", Port: 1},
		"PodPort.Pod":       {Namespace: "n", Pod: "p?", Port: 1},
		"PodPort.Port":      {Namespace: "n", Pod: "p", Port: 65536},
	} {
		var fe *kubeconfig.FieldError
		if _, err := c.PortForward(t.Context(), to); !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("got %v, want an error of %s", err, field)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.PortForward(ctx, podPort(7)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
