package status_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

// The page of a server without replicas.
func Example() {
	server := &tunnel.Server{}
	page := &status.Handler{
		Title: "Edge clusters",
		Fleet: func(context.Context) []tunnel.ReplicaStatus {
			return []tunnel.ReplicaStatus{{Name: "tunnel-0", Self: true, Status: server.Status()}}
		},
	}
	res := httptest.NewRecorder()
	page.ServeHTTP(res, httptest.NewRequest("GET", "/", nil)) // http.ListenAndServe("127.0.0.1:8080", page)
	fmt.Println(res.Code, strings.Contains(res.Body.String(), "No agent has connected yet."))
	// Output: 200 true
}
