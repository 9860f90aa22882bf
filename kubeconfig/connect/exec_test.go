package connect_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// protocols are those that exec and port-forward are spoken by.
var protocols = map[string]bool{"websocket": true, "spdy": false}

// overDialer is a Client by whose dialer alone the API server is reached.
func overDialer(t *testing.T, api *apiServer) *connect.Client {
	t.Helper()
	return kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Dialer: api.dialer()})
}

func execOptions(command ...string) connect.ExecOptions {
	return connect.ExecOptions{Namespace: "default", Pod: "etcd-0", Command: command}
}

func TestExec(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<14)
	for protocol, webSocket := range protocols {
		for _, test := range []struct {
			name           string
			command        []string
			stdin          string
			stdout, stderr string
			code           int
		}{
			{"nothing", []string{"true"}, "", "", "", 0},
			{"stdin", []string{"cat"}, large, large, "", 0},
			{"exit code", []string{"fail", "7"}, "", "out", "err", 7},
		} {
			t.Run(protocol+"/"+test.name, func(t *testing.T) {
				api := newAPIServer(t)
				k := newKubelet(t, api, webSocket)
				c := overDialer(t, api)
				var stdout, stderr bytes.Buffer
				o := execOptions(test.command...)
				o.Stdin, o.Stdout, o.Stderr = strings.NewReader(test.stdin), &stdout, &stderr
				err := c.Exec(t.Context(), o)
				var exit *connect.ExitError
				if errors.As(err, &exit); test.code == 0 && err != nil || test.code != 0 && (exit == nil || exit.Code != test.code) {
					t.Errorf("got %v, want exit code %d", err, test.code)
				}
				if stdout.String() != test.stdout || stderr.String() != test.stderr {
					t.Errorf("got %d bytes, %q; want %d bytes, %q", stdout.Len(), &stderr, len(test.stdout), test.stderr)
				}
				if by, _ := k.seen(); !cmp.Equal(by, []string{protocol}) {
					t.Errorf("asked by %v, want %s", by, protocol)
				}
				if got := api.lastClient(); got != "kubernetes-admin" {
					t.Errorf("the API server saw the certificate of %q", got)
				}
			})
		}
	}
}

// The other kinds of users have to be in the request.
func TestExecToken(t *testing.T) {
	for protocol, webSocket := range protocols {
		t.Run(protocol, func(t *testing.T) {
			api := newAPIServer(t)
			k := newKubelet(t, api, webSocket)
			config := build(t, api, kubeconfig.Route{})
			config.AuthInfos["c1-admin"] = &clientcmdapi.AuthInfo{Token: "t", Impersonate: "jane"}
			c := kubetest.NewClient(t, config, &connect.Options{Dialer: api.dialer()})
			o := execOptions("true", "a b")
			o.Container = "etcd"
			if err := c.Exec(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			h := api.lastHeader()
			if got, who := h.Get("Authorization"), h.Get("Impersonate-User"); got != "Bearer t" || who != "jane" {
				t.Errorf("got %q as %q, want the token as jane", got, who)
			}
			if _, asks := k.seen(); !cmp.Equal(asks, []string{"etcd-0/exec?command=true&command=a+b&container=etcd"}) {
				t.Errorf("asked for %q", asks)
			}
		})
	}
}

// A connection that breaks is not the command's end.
func TestExecCut(t *testing.T) {
	for protocol, webSocket := range protocols {
		t.Run(protocol, func(t *testing.T) {
			api := newAPIServer(t)
			newKubelet(t, api, webSocket)
			o := execOptions("cut")
			o.Stdin, o.Stdout = strings.NewReader("x"), io.Discard
			if err := overDialer(t, api).Exec(t.Context(), o); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}

func TestExecRefused(t *testing.T) {
	for protocol, webSocket := range protocols {
		t.Run(protocol, func(t *testing.T) {
			api := newAPIServer(t)
			newKubelet(t, api, webSocket)
			err := overDialer(t, api).Exec(t.Context(), execOptions("forbidden"))
			if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "connect: exec: ") {
				t.Errorf("got %v, want the API server's 403", err)
			}
		})
	}
}

// What the route fails with is not lost in client-go's words.
func TestExecRouteError(t *testing.T) {
	api := newAPIServer(t)
	p := newProxy(t, api, nil, nil, serveConnect)
	config := build(t, api, kubeconfig.Route{ProxyURL: p.url("http")})
	config.Clusters["c1"].Server = "https://elsewhere.test"
	c := kubetest.NewClient(t, config, nil)
	var de *dialer.Error
	if err := c.Exec(t.Context(), execOptions("true")); !errors.As(err, &de) || de.Status != http.StatusBadGateway {
		t.Errorf("Exec: got %v, want the proxy's 502", err)
	}
	if _, err := c.PortForward(t.Context(), podPort(7)); !errors.As(err, &de) {
		t.Errorf("PortForward: got %v, want the proxy's 502", err)
	}
}

// ctx and Close end a command at whatever it does.
func TestExecEnds(t *testing.T) {
	for protocol, webSocket := range protocols {
		for name, test := range map[string]struct {
			end  func(context.CancelFunc, *connect.Client)
			want error
		}{
			"ctx":   {func(cancel context.CancelFunc, _ *connect.Client) { cancel() }, context.Canceled},
			"Close": {func(_ context.CancelFunc, c *connect.Client) { c.Close() }, net.ErrClosed},
		} {
			t.Run(protocol+"/running/"+name, func(t *testing.T) {
				api := newAPIServer(t)
				k := newKubelet(t, api, webSocket)
				c := overDialer(t, api)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stdin, feed := io.Pipe()
				defer feed.Close()
				running, stdout := io.Pipe()
				o := execOptions("hang")
				o.Stdin, o.Stdout = stdin, stdout
				failed := make(chan error)
				go func() { failed <- c.Exec(ctx, o) }()
				if _, err := running.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				test.end(cancel, c)
				if err := <-failed; !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				<-k.ended
			})
			t.Run(protocol+"/dialing/"+name, func(t *testing.T) {
				api := newAPIServer(t)
				dialing := make(chan struct{})
				d := dialer.Func(func(ctx context.Context, _, _ string) (net.Conn, error) {
					close(dialing)
					<-ctx.Done()
					return nil, ctx.Err()
				})
				c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Dialer: d})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failed := make(chan error)
				go func() { failed <- c.Exec(ctx, execOptions("true")) }()
				<-dialing
				test.end(cancel, c)
				if err := <-failed; !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			})
		}
	}
}

// client-go waits 30 seconds for an answer to a SPDY stream, whatever becomes of
// the connection and of the context. It waits alone.
func TestEndsUnanswered(t *testing.T) {
	for name, call := range map[string]func(context.Context, *connect.Client) error{
		"Exec": func(ctx context.Context, c *connect.Client) error { return c.Exec(ctx, execOptions("true")) },
		"PortForward": func(ctx context.Context, c *connect.Client) error {
			_, err := c.PortForward(ctx, podPort(7))
			return err
		},
	} {
		for _, want := range []error{context.Canceled, net.ErrClosed} {
			t.Run(name+"/"+want.Error(), func(t *testing.T) {
				api := newAPIServer(t)
				k := newKubelet(t, api, false)
				k.mute = make(chan struct{})
				defer close(k.mute)
				c := overDialer(t, api)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failed := make(chan error)
				go func() { failed <- call(ctx, c) }()
				<-k.waiting
				began := time.Now()
				if want == net.ErrClosed {
					c.Close()
				} else {
					cancel()
				}
				if err := <-failed; !errors.Is(err, want) || time.Since(began) > 15*time.Second {
					t.Errorf("got %v after %v, want %v at once", err, time.Since(began), want)
				}
			})
		}
	}
}

func TestExecInvalid(t *testing.T) {
	api := newAPIServer(t)
	c := overDialer(t, api)
	type options = connect.ExecOptions
	for _, test := range []struct {
		name   string
		change func(*options)
		field  string
	}{
		{"no namespace", func(o *options) { o.Namespace = "" }, "ExecOptions.Namespace"},
		{"no pod", func(o *options) { o.Pod = "" }, "ExecOptions.Pod"},
		{"pod is a path", func(o *options) { o.Pod = ".." }, "ExecOptions.Pod"},
		{"no command", func(o *options) { o.Command = nil }, "ExecOptions.Command"},
		{"terminal with stderr", func(o *options) { o.TTY, o.Stderr = true, io.Discard }, "ExecOptions.Stderr"},
	} {
		o := execOptions("true")
		test.change(&o)
		var fe *kubeconfig.FieldError
		if err := c.Exec(t.Context(), o); !errors.As(err, &fe) || fe.Field != test.field {
			t.Errorf("%s: got %v, want an error of %s", test.name, err, test.field)
		}
	}
	if got := api.acceptedConns(); got != 0 {
		t.Errorf("got %d connections, want none", got)
	}
}
