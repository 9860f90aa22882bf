package proxytest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/causewayproject/causeway/internal/relay"
)

// ServeHTTP makes p a handler, for a proxy that speaks HTTP/2. A server of
// net/http can't end a tunnel in the direction of the client alone: when the
// target ends, the client can send no more.
func (p *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !p.isAuthorized(r):
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxytest"`)
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	case r.Method != http.MethodConnect:
		http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	far, err := dialTarget(r.Context(), p.Dial, r.Host)
	if err != nil {
		http.Error(w, "no way there", http.StatusBadGateway)
		return
	}
	stop := context.AfterFunc(r.Context(), func() { far.Close() })
	rc := http.NewResponseController(w)
	var wg sync.WaitGroup
	defer func() {
		stop()
		far.Close()
		r.Body.Close()
		wg.Wait()
	}()
	if errors.Join(rc.EnableFullDuplex(), rc.Flush()) != nil {
		return
	}
	wg.Go(func() {
		if _, err := io.Copy(far, r.Body); err != nil {
			far.Close()
		} else {
			relay.CloseWrite(far)
		}
	})
	if _, err := io.Copy(flushed{w, rc}, far); err != nil {
		panic(http.ErrAbortHandler) // RST_STREAM
	}
}

// flushed sends what is written at once.
type flushed struct {
	w  io.Writer
	rc *http.ResponseController
}

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.rc.Flush())
}
