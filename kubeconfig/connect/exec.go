package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

// ExecOptions says what to run, and where.
type ExecOptions struct {
	// Namespace and Pod are where. Required.
	Namespace, Pod string
	// Container is one of the Pod's. If empty, the one that the API server
	// takes for the default.
	Container string
	// Command is the program and its arguments; no shell is asked. Required.
	Command []string

	// Stdin is read until its end. If nil, the command has no stdin. A Read that
	// is under way when Exec returns is not waited for.
	Stdin io.Reader
	// Stdout and Stderr take what the command writes. If nil, it is not asked
	// for.
	Stdout, Stderr io.Writer
	// TTY gives the command a terminal, which has no Stderr of its own.
	TTY bool
	// Resize tells the sizes of the terminal. If nil, it keeps its size.
	Resize remotecommand.TerminalSizeQueue
}

// ExitError is the exit code of a command that ran, and did not end with zero.
type ExitError struct {
	Code int
	// Err is client-go's error.
	Err error
}

// Error returns "connect: exec: exit code 7".
func (e *ExitError) Error() string { return "connect: exec: exit code " + strconv.Itoa(e.Code) }

// Unwrap returns client-go's error.
func (e *ExitError) Unwrap() error { return e.Err }

// Exec runs a command in a container until it ends, by the Client's route. As
// kubectl does, it asks by WebSocket, and by SPDY where the API server or a
// proxy before it has no such thing.
//
// A command that fails is an [*ExitError]. A refusal of the API server is a
// StatusError of k8s.io/apimachinery; a failure of the route is that error, such as a
// *dialer.Error. A connection that is lost before the command's end
// was told is an error, by SPDY too. When ctx ends, the connection is cut at
// whatever it does, and the error is ctx's; the command may run on, as it does
// when kubectl exec is interrupted. After Close the error is net.ErrClosed.
// Options that can't be used are a [*kubeconfig.FieldError].
func (c *Client) Exec(ctx context.Context, o ExecOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("connect: exec: %w", err)
	}
	p, err := c.bridge.newLogin()
	if err != nil {
		return err
	}
	defer p.closeLater()
	running, cancel := c.bridge.untilClosed(ctx)
	defer cancel()
	stop := context.AfterFunc(running, p.close)
	defer stop()
	executor, err := c.newExecutor(p, c.podURL(o.Namespace, o.Pod, "exec", o.queryValues()))
	if err != nil {
		return fmt.Errorf("connect: exec: %w", err)
	}
	err = executor.StreamWithContext(running, remotecommand.StreamOptions{
		Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY, TerminalSizeQueue: o.Resize,
	})
	var exit exec.CodeExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return &ExitError{Code: exit.Code, Err: err}
	}
	return p.explainError("exec", ctx, err)
}

// configFor is Config for what uses the login.
func (c *Client) configFor(p *login) *rest.Config {
	config := c.Config()
	config.Proxy = http.ProxyURL(p.url())
	return config
}

func (c *Client) newExecutor(p *login, u *url.URL) (remotecommand.Executor, error) {
	config := c.configFor(p)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	bySPDY, err := remotecommand.NewSPDYExecutorForTransports(transport, completeUpgrader{statusUpgrader{upgrader}}, http.MethodPost, u)
	if err != nil {
		return nil, err
	}
	// RFC 6455, 4.1 wants a GET.
	byWebSocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(byWebSocket, bySPDY, upgradeFailed)
}

// podURL is that of a Pod's subresource. Its names were checked.
func (c *Client) podURL(namespace, pod, subresource string, query url.Values) *url.URL {
	u := c.currentRoute().Server.URL.JoinPath("api/v1/namespaces", namespace, "pods", pod, subresource)
	u.RawQuery = query.Encode()
	return u
}

func (o *ExecOptions) check() error {
	var command, stderr error
	if len(o.Command) == 0 {
		command = field.ErrRequired
	}
	if o.TTY && o.Stderr != nil {
		stderr = errors.New("a terminal has one output: Stdout")
	}
	return errors.Join(
		checkPod("ExecOptions.", o.Namespace, o.Pod),
		field.Wrap("ExecOptions.Command", command),
		field.Wrap("ExecOptions.Stderr", stderr),
	)
}

// checkPod checks what becomes part of a URL's path.
func checkPod(prefix, namespace, pod string) error {
	var podErr error
	if pod == "" {
		podErr = field.ErrRequired
	} else if len(validation.IsDNS1123Subdomain(pod)) > 0 {
		podErr = errors.New("want a Pod's name: lowercase letters, digits, '-' and '.'")
	}
	return errors.Join(
		field.Wrap(prefix+"Namespace", field.CheckNamespace(namespace)),
		field.Wrap(prefix+"Pod", podErr),
	)
}

// queryValues is that of corev1.PodExecOptions.
func (o *ExecOptions) queryValues() url.Values {
	q := url.Values{"command": o.Command}
	if o.Container != "" {
		q.Set("container", o.Container)
	}
	for name, set := range map[string]bool{
		"stdin": o.Stdin != nil, "stdout": o.Stdout != nil, "stderr": o.Stderr != nil, "tty": o.TTY,
	} {
		if set {
			q.Set(name, "true")
		}
	}
	return q
}
