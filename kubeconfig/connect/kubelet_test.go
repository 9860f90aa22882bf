package connect_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/portforward"
	execclient "k8s.io/client-go/tools/remotecommand"

	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// kubelet is the far end of exec and port-forward, as an API server shows it.
type kubelet struct {
	t     *testing.T
	ended chan error // how the peer of a program or a port ended
}

func newKubelet(t *testing.T, api *apiServer) *kubelet {
	k := &kubelet{t: t, ended: make(chan error, 100)}
	api.pods = k
	return k
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	byWebSocket := wsstream.IsWebSocketRequest(r)
	switch path.Base(r.URL.Path) {
	case "exec":
		if byWebSocket {
			k.execByWebSocket(w, r)
		} else {
			k.execBySPDY(w, r)
		}
	case "portforward":
		if byWebSocket {
			k.forwardByWebSocket(w, r)
		} else {
			k.forwardBySPDY(w, r)
		}
	}
}

// process is what a command has.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	status         io.Writer
}

func (k *kubelet) execByWebSocket(w http.ResponseWriter, r *http.Request) {
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		remotecommand.StreamProtocolV5Name: {Binary: true, Channels: []wsstream.ChannelType{
			wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel,
		}},
	})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		k.t.Error(err)
		return
	}
	k.run(r, process{streams[0], streams[1], streams[2], streams[3]})
	conn.Close()
}

func (k *kubelet) execBySPDY(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name}); err != nil {
		k.t.Error(err)
		return
	}
	streams := make(chan httpstream.Stream, 5)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	q, p := r.URL.Query(), process{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	want := 1 // the error stream
	for _, name := range []string{"stdin", "stdout", "stderr"} {
		if q.Get(name) == "true" {
			want++
		}
	}
	for range want {
		select {
		case <-conn.CloseChan():
			return
		case s := <-streams:
			switch s.Headers().Get(corev1.StreamType) {
			case corev1.StreamTypeStdin:
				p.stdin = s
			case corev1.StreamTypeStdout:
				p.stdout = s
			case corev1.StreamTypeStderr:
				p.stderr = s
			case corev1.StreamTypeError:
				p.status = s
			}
		}
	}
	k.run(r, p)
	for _, s := range []any{p.stdout, p.stderr, p.status} {
		if c, ok := s.(io.Closer); ok {
			c.Close()
		}
	}
	<-conn.CloseChan()
}

// run is the programs of the container.
func (k *kubelet) run(r *http.Request, p process) {
	command := r.URL.Query()["command"]
	status := metav1.Status{Status: metav1.StatusSuccess}
	switch command[0] {
	case "cat":
		io.Copy(p.stdout, p.stdin)
	case "hang":
		fmt.Fprint(p.stdout, ".") // who reads this has all its streams
		_, err := io.Copy(io.Discard, p.stdin)
		k.ended <- err
		return
	}
	json.NewEncoder(p.status).Encode(status)
}

func (k *kubelet) forwardBySPDY(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		k.t.Error(err)
		return
	}
	pairs := k.newPairs()
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, pairs.add)
	if conn == nil {
		return
	}
	pairs.serve(r, conn)
}

func (k *kubelet) forwardByWebSocket(w http.ResponseWriter, r *http.Request) {
	const protocol = "SPDY/3.1+" + portforward.PortForwardProtocolV1Name
	websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = []string{protocol}
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			ws.PayloadType = websocket.BinaryFrame
			pairs := k.newPairs()
			conn, err := spdy.NewServerConnection(ws, pairs.add)
			if err != nil {
				k.t.Error(err)
				return
			}
			pairs.serve(r, conn)
		},
	}.ServeHTTP(w, r)
}

// pairs collects an error and a data stream for each forwarded connection.
type pairs struct {
	k     *kubelet
	ready chan [2]httpstream.Stream
	mu    sync.Mutex
	errs  map[string]httpstream.Stream
}

func (k *kubelet) newPairs() *pairs {
	return &pairs{k: k, ready: make(chan [2]httpstream.Stream, 10), errs: make(map[string]httpstream.Stream)}
}

func (p *pairs) add(s httpstream.Stream, _ <-chan struct{}) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := s.Headers().Get(corev1.PortForwardRequestIDHeader)
	if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
		p.errs[id] = s
		return nil
	}
	p.ready <- [2]httpstream.Stream{p.errs[id], s}
	return nil
}

func (p *pairs) serve(r *http.Request, conn httpstream.Connection) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer conn.Close()
	for {
		select {
		case <-conn.CloseChan():
			return
		case pair := <-p.ready:
			wg.Go(func() { p.k.echo(pair[0], pair[1]) })
		}
	}
}

// echo is what listens in the Pod.
func (k *kubelet) echo(errs, data httpstream.Stream) {
	defer data.Close()
	defer errs.Close()
	_, err := io.Copy(data, data)
	k.ended <- err
}

// runCommand runs a command in the Pod, by WebSocket, as kubectl does.
func runCommand(ctx context.Context, t *testing.T, c *connect.Client, command string, stdout io.Writer) error {
	t.Helper()
	config := c.Config()
	u := subresource(t, config, "exec")
	u.RawQuery = "command=" + command + "&stdout=true"
	e, err := execclient.NewWebSocketExecutor(config, http.MethodGet, u.String())
	if err != nil {
		t.Fatal(err)
	}
	return e.StreamWithContext(ctx, execclient.StreamOptions{Stdout: stdout})
}
