package bed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	// NodeName is the Node of the Kubelet.
	NodeName = "node"
	// PodPort is where every pod serves HTTP, on its loopback.
	PodPort = 8080
	// PodPage is what a GET of a pod returns.
	PodPage = "a page of the pod\n"

	kubeletPort = 10250
)

// A Kubelet is as much of one as kube-apiserver asks for: logs, exec, attach
// and port-forward, by the code that container runtimes serve them with. It is
// part of this process; its listener, what it executes and the ports of its
// pods are in its namespace. All pods are the same one container.
type Kubelet struct {
	ns      *Namespace
	server  *http.Server
	pod     *http.Server
	ctx     context.Context // ends what it executes
	stop    context.CancelFunc
	serving sync.WaitGroup

	mu     sync.Mutex // guards the field below
	places map[string]podPlace
}

// A podPlace is where commands of a pod run.
type podPlace struct {
	ns      *Namespace
	program string
}

// PlacePod has commands in the pod of that name run in another namespace, and be this
// program's, whatever path they name.
func (k *Kubelet) PlacePod(name string, ns *Namespace, program string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.places[name] = podPlace{ns, program}
}

// Address returns the host:port where kube-apiserver finds it.
func (k *Kubelet) Address() string { return net.JoinHostPort(APIIP, strconv.Itoa(kubeletPort)) }

func startKubelet(ns *Namespace, kube *Kube) (*Kubelet, error) {
	k := &Kubelet{ns: ns, places: map[string]podPlace{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	quiet := log.New(io.Discard, "", 0)
	k.server = &http.Server{Handler: k.newHandler(), ErrorLog: quiet, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{kube.CA.Server(NodeName, APIIP)},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    kube.CA.Pool(),
	}}
	k.pod = &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, PodPage) })}
	l, err := ns.Listen(k.Address())
	if err != nil {
		return nil, fmt.Errorf("bed: kubelet: %w", err)
	}
	pod, err := ns.Listen(net.JoinHostPort("127.0.0.1", strconv.Itoa(PodPort)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bed: kubelet: %w", err), l.Close())
	}
	k.serving.Go(func() { k.server.ServeTLS(l, "", "") })
	k.serving.Go(func() { k.pod.Serve(pod) })
	return k, nil
}

// close ends what it serves; connections that were upgraded end with
// kube-apiserver.
func (k *Kubelet) close() {
	k.stop()
	k.server.Close()
	k.pod.Close()
	k.serving.Wait()
}

func (k *Kubelet) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		if opts, ok := parseStreams(w, r); ok {
			remotecommand.ServeExec(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), r.Form["command"], opts,
				time.Hour, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
		}
	})
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		if opts, ok := parseStreams(w, r); ok {
			remotecommand.ServeAttach(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), opts,
				time.Hour, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
		}
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		opts, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, k, r.PathValue("pod"), "", opts,
			time.Hour, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
	})
	return mux
}

func parseStreams(w http.ResponseWriter, r *http.Request) (*remotecommand.Options, bool) {
	opts, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return opts, err == nil
}

// serveLogs answers "line 1" to "line 3", and when asked to follow, ten more lines
// a second.
func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for n := 1; ; n++ {
		if n > 3 {
			http.NewResponseController(w).Flush()
			if r.FormValue("follow") != "true" {
				return
			}
			select {
			case <-ticker.C:
			case <-r.Context().Done():
				return
			case <-k.ctx.Done():
				return
			}
		}
		fmt.Fprintf(w, "line %d\n", n)
	}
}

var (
	_ remotecommand.Executor    = (*Kubelet)(nil)
	_ remotecommand.Attacher    = (*Kubelet)(nil)
	_ portforward.PortForwarder = (*Kubelet)(nil)
)

// ExecInContainer runs the command in the Kubelet's namespace, with the
// machine's files.
func (k *Kubelet) ExecInContainer(ctx context.Context, pod, _, _ string, argv []string, in io.Reader, out, errs io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.ctx, cancel)()
	ns := k.ns
	k.mu.Lock()
	if place, ok := k.places[pod]; ok {
		ns, argv = place.ns, append([]string{place.program}, argv[1:]...)
	}
	k.mu.Unlock()
	cmd := exec.CommandContext(ctx, programPath("ip"), append([]string{"netns", "exec", ns.Name}, argv...)...)
	cmd.Dir = k.ns.run.dir
	// Nil interfaces, not interfaces of nil: the command gets /dev/null.
	if out != nil {
		cmd.Stdout = out
	}
	if errs != nil {
		cmd.Stderr = errs
	}
	if in != nil {
		// A pipe of our own: Wait would wait for the client's end of file.
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() { // ends with the streams
			io.Copy(stdin, in)
			stdin.Close()
		}()
	}
	if err := k.ns.run.start(cmd); err != nil {
		return err
	}
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// AttachContainer writes a greeting, and echoes its input.
func (k *Kubelet) AttachContainer(_ context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize) error {
	if out == nil {
		return errors.New("attach without output")
	}
	if _, err := io.WriteString(out, "attached\n"); err != nil || in == nil {
		return err
	}
	_, err := io.Copy(out, in)
	return err
}

// PortForward connects a stream to a port on the pod's loopback.
func (k *Kubelet) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := k.ns.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { // ends with conn or the stream
		io.Copy(conn, stream)
		conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	if errors.Is(err, io.EOF) { // the client has closed the stream first
		return nil
	}
	return err
}
