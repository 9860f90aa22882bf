package connect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	remoteconst "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// upgradeFailed reports whether an upgrade to WebSocket was refused, so that SPDY
// is worth a try. Up to 0.35, client-go's error for that is a type of
// k8s.io/apimachinery; since 0.36 it is the type of the same name in
// k8s.io/streaming. An import of the second would move importers to 0.36, so
// the type is told by its name.
func upgradeFailed(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if t := reflect.TypeOf(err); t.Kind() == reflect.Pointer && t.Elem().Name() == "UpgradeFailureError" {
			return true
		}
	}
	return false
}

// statusUpgrader keeps what the API server says when it refuses an upgrade to SPDY:
// client-go keeps only the text.
type statusUpgrader struct{ spdy.Upgrader }

func (t statusUpgrader) NewConnection(resp *http.Response) (httpstream.Connection, error) {
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

// completeUpgrader tells a finished command from a lost connection. When a SPDY
// connection breaks, spdystream ends its streams as if all had been sent, and
// remotecommand takes that for success. Since version 4 of the protocol, though,
// a command's end is always told on the error stream.
type completeUpgrader struct{ spdy.Upgrader }

func (w completeUpgrader) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	conn, err := w.Upgrader.NewConnection(resp)
	told := []string{remoteconst.StreamProtocolV4Name, remoteconst.StreamProtocolV5Name}
	if err != nil || !slices.Contains(told, resp.Header.Get(httpstream.HeaderProtocolVersion)) {
		return conn, err
	}
	return completeConn{conn}, nil
}

type completeConn struct{ httpstream.Connection }

func (c completeConn) CreateStream(headers http.Header) (httpstream.Stream, error) {
	s, err := c.Connection.CreateStream(headers)
	if err != nil || headers.Get(corev1.StreamType) != corev1.StreamTypeError {
		return s, err
	}
	return &endStream{Stream: s}, nil
}

// endStream must not end before it has said something.
type endStream struct {
	httpstream.Stream
	hasRead bool
}

func (s *endStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	s.hasRead = s.hasRead || n > 0
	if err == io.EOF && !s.hasRead {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
