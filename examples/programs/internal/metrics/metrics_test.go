package metrics_test

import (
	"net/http/httptest"
	"testing"

	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
)

func TestMetrics(t *testing.T) {
	m := metrics.New("causeway_provider_")
	m.Add("writes_total", "kind", "update", "result", "ok")
	m.Add("writes_total", "kind", "update", "result", "ok")
	m.Add("writes_total", "kind", "create", "result", "error")
	m.Set("leading", 1)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, nil)
	want := `# TYPE causeway_provider_leading gauge
causeway_provider_leading 1
# TYPE causeway_provider_writes_total counter
causeway_provider_writes_total{kind="create",result="error"} 1
causeway_provider_writes_total{kind="update",result="ok"} 2
`
	if got := w.Body.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
