package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

type requestsInput struct {
	Kubeconfig []byte
	Every      time.Duration
}

// requestsAnswer is a line for each failure, one for each 100 requests, and one at the
// end.
type requestsAnswer struct {
	Sent, Failed int
	Error        string // of the last request
	Slowest      time.Duration
}

// requestsRole sends requests by an unmodified client-go until SIGTERM, each on a
// connection of its own, and counts those that fail.
func requestsRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input requestsInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("requests role: input: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.RESTConfigFromKubeConfig(input.Kubeconfig)
	if err != nil {
		return err
	}
	config.Timeout = 10 * time.Second
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return closing{next} }
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	var total requestsAnswer
	tick := time.NewTicker(input.Every)
	defer tick.Stop()
	for ; ctx.Err() == nil; awaitTick(ctx, tick) {
		began := time.Now()
		err := getOnce(client, config.Host+"/api/v1/namespaces/kube-system")
		total.Slowest = max(total.Slowest, time.Since(began))
		total.Sent++
		answer := total
		if err != nil {
			total.Failed++
			answer.Failed, answer.Error = total.Failed, err.Error()
		}
		if err != nil || total.Sent%100 == 0 {
			json.NewEncoder(out).Encode(answer)
		}
	}
	return json.NewEncoder(out).Encode(total)
}

func awaitTick(ctx context.Context, tick *time.Ticker) {
	select {
	case <-ctx.Done():
	case <-tick.C:
	}
}

// closing asks for a connection for each request.
type closing struct{ http.RoundTripper }

func (c closing) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Close = true
	return c.RoundTripper.RoundTrip(req)
}

func getOnce(client *http.Client, url string) error {
	res, err := client.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// endRequests ends a requests role once it has sent that many, and returns what it
// counted.
func endRequests(t *testing.T, r *bed.Running, sent int) requestsAnswer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := r.WaitFor(ctx, fmt.Sprintf(`{"Sent":%d,`, sent)); err != nil {
		t.Fatal(err)
	}
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(); err != nil {
		t.Fatal(err)
	}
	var last requestsAnswer
	for decoder := json.NewDecoder(strings.NewReader(r.Stdout())); ; {
		var answer requestsAnswer
		if err := decoder.Decode(&answer); errors.Is(err, io.EOF) {
			return last
		} else if err != nil {
			t.Fatal(err)
		}
		if answer.Error != "" {
			t.Logf("request %d failed: %s", answer.Sent, answer.Error)
		}
		last = answer
	}
}
