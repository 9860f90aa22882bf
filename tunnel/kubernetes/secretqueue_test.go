package kubernetes_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/internal/test/storetest"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// emptyAPI is an API server without a network that has no object.
type emptyAPI struct{}

func (emptyAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	const none = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(none)), Request: r}, nil
}

// A crowd enrols by a client with client-go's own limit. The question whether an
// agent is revoked, by the same client, does not wait behind the crowd.
func TestRevokedBesideTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClients(t, &rest.Config{Host: "http://api.invalid", Transport: emptyAPI{}})
		s := &kubernetes.SecretStore{Client: client, Namespace: namespace}
		began := time.Now()
		var crowd sync.WaitGroup
		for n := range 200 {
			crowd.Go(func() {
				if _, err := records(s).ClaimToken(t.Context(), storetest.Token(n, began).ID, "k"); !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // the crowd waits for its turn
		if revoked, err := records(s).Revoked(t.Context(), agent("a")); err != nil || !revoked.IsZero() {
			t.Errorf("got %v, %v", revoked, err)
		}
		took := time.Since(began)
		t.Logf("an answer about a revocation took %v", took)
		if took > time.Second+time.Millisecond {
			t.Errorf("an answer about a revocation took %v beside a crowd that enrols, want a second at most", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := records(s).ClaimToken(ctx, "late", "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who comes last and has a second: got %v, want %v", err, context.DeadlineExceeded)
		}
		crowd.Wait()
	})
}
