package connect_test

import (
	"encoding/json"
	"errors"
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
)

// kubelet is the far end of exec and port-forward, as an API server shows it.
type kubelet struct {
	t         *testing.T
	webSocket bool // else SPDY alone

	mu   sync.Mutex
	by   []string // "websocket" or "spdy" for each connection
	asks []string // what was asked for
	// waiting gets a value when a command or a port waits for its peer.
	waiting chan struct{}
	ended   chan error    // how a program's or a port's peer ended
	taken   chan int64    // how much port 9 got
	mute    chan struct{} // not nil: streams are not answered until it is closed
}

func newKubelet(t *testing.T, api *apiServer, webSocket bool) *kubelet {
	k := &kubelet{t: t, webSocket: webSocket, waiting: make(chan struct{}, 100), ended: make(chan error, 100), taken: make(chan int64, 100)}
	api.pods = k
	return k
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	byWebSocket := wsstream.IsWebSocketRequest(r)
	if byWebSocket && !k.webSocket {
		http.Error(w, "no WebSocket here", http.StatusBadRequest)
		return
	}
	k.mu.Lock()
	k.by = append(k.by, map[bool]string{true: "websocket", false: "spdy"}[byWebSocket])
	k.asks = append(k.asks, strings.TrimPrefix(r.URL.RequestURI(), podPath))
	k.mu.Unlock()
	switch path.Base(r.URL.Path) {
	case "exec":
		if r.URL.Query().Get("command") == "forbidden" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "no exec for you",
			})
			return
		}
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

func (k *kubelet) hush() error {
	if k.mute == nil {
		return nil
	}
	k.waiting <- struct{}{}
	<-k.mute
	return errors.New("muted")
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
		if err := k.hush(); err != nil {
			return err
		}
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
	case "fail":
		fmt.Fprint(p.stdout, "out")
		fmt.Fprint(p.stderr, "err")
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: command[1]}}},
		}
	case "hang":
		fmt.Fprint(p.stdout, ".") // who reads this has all its streams
		_, err := io.Copy(io.Discard, p.stdin)
		k.ended <- err
		return
	case "cut":
		io.ReadFull(p.stdin, make([]byte, 1)) // the client has all its streams
		fmt.Fprint(p.stdout, "half of the out")
		cut(r)
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
	if err := p.k.hush(); err != nil {
		return err
	}
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
			wg.Go(func() { p.k.port(r, conn, pair[0], pair[1]) })
		}
	}
}

// port is what listens in the Pod.
func (k *kubelet) port(r *http.Request, conn httpstream.Connection, errs, data httpstream.Stream) {
	defer data.Close()
	defer errs.Close()
	switch port := data.Headers().Get(corev1.PortHeader); port {
	case "7": // echo
		_, err := io.Copy(data, data)
		k.ended <- err
	case "9": // takes all, then says how much
		n, _ := io.Copy(io.Discard, data)
		k.taken <- n
		fmt.Fprint(data, n)
	case "13": // broken off half-way
		io.ReadFull(data, make([]byte, 1))
		fmt.Fprint(data, "half")
		cut(r)
		<-conn.CloseChan()
	case "17": // says its piece
		fmt.Fprint(data, "quote of the day")
	case "19": // waits
		k.waiting <- struct{}{}
		<-conn.CloseChan()
	default:
		fmt.Fprintf(errs, "dial tcp4 127.0.0.1:%s: connect: connection refused", port)
	}
}

func (k *kubelet) seen() (by, asks []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.by...), append([]string(nil), k.asks...)
}
