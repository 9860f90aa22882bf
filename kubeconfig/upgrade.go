package kubeconfig

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	//lint:ignore SA1019 client-go's spdy.Upgrader returns its types.
	oldhttpstream "k8s.io/apimachinery/pkg/util/httpstream"
	remoteconst "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// telling keeps what the API server says when it refuses an upgrade to SPDY:
// client-go keeps the text alone.
type telling struct{ spdy.Upgrader }

func (t telling) NewConnection(resp *http.Response) (oldhttpstream.Connection, error) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return t.Upgrader.NewConnection(resp)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("upgrade refused (%s): %w", resp.Status, err)
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Kind == "Status" {
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	return nil, fmt.Errorf("upgrade refused (%s): %.200q", resp.Status, text)
}

// whole tells the end of a command from that of its connection. When a SPDY
// connection breaks, spdystream ends its streams as if all had been sent, and
// remotecommand takes that for success. Since version 4 of the protocol, though,
// a command's end is always told on the error stream.
type whole struct{ spdy.Upgrader }

func (w whole) NewConnection(resp *http.Response) (oldhttpstream.Connection, error) {
	conn, err := w.Upgrader.NewConnection(resp)
	told := []string{remoteconst.StreamProtocolV4Name, remoteconst.StreamProtocolV5Name}
	if err != nil || !slices.Contains(told, resp.Header.Get(oldhttpstream.HeaderProtocolVersion)) {
		return conn, err
	}
	return wholeConn{conn}, nil
}

type wholeConn struct{ oldhttpstream.Connection }

func (c wholeConn) CreateStream(headers http.Header) (oldhttpstream.Stream, error) {
	s, err := c.Connection.CreateStream(headers)
	if err != nil || headers.Get(corev1.StreamType) != corev1.StreamTypeError {
		return s, err
	}
	return &endStream{Stream: s}, nil
}

// endStream must not end before it has said something.
type endStream struct {
	oldhttpstream.Stream
	said bool
}

func (s *endStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	s.said = s.said || n > 0
	if err == io.EOF && !s.said {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
