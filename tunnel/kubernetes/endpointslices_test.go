package kubernetes_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// endpoint is one of a slice; conditions are pairs of a name and a value.
func endpoint(address string, conditions ...any) map[string]any {
	said := map[string]any{}
	for n := 0; n < len(conditions); n += 2 {
		said[conditions[n].(string)] = conditions[n+1]
	}
	return map[string]any{"addresses": []any{address}, "conditions": said}
}

// port is one of a slice.
func port(name string, number int64, protocol string) map[string]any {
	return map[string]any{"name": name, "port": number, "protocol": protocol}
}

// slice is an EndpointSlice of the Service "tunnel".
func slice(name, family string, ports []any, endpoints ...any) map[string]any {
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata":    map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"kubernetes.io/service-name": "tunnel"}},
		"addressType": family, "ports": ports, "endpoints": endpoints,
	}
}

func TestEndpointSlices(t *testing.T) {
	t.Parallel()
	agents := []any{port("agents", 8443, "TCP"), port("agents", 8444, "UDP"), port("metrics", 9090, "TCP")}
	one := []any{port("", 8443, "TCP")}
	foreign := slice("foreign", "IPv4", agents, endpoint("10.0.9.9"))
	foreign["metadata"].(map[string]any)["labels"] = map[string]any{"kubernetes.io/service-name": "another"}
	elsewhere := slice("elsewhere", "IPv4", agents, endpoint("10.0.9.8"))
	elsewhere["metadata"].(map[string]any)["namespace"] = "another"
	for _, tt := range []struct {
		name   string
		port   string
		slices []map[string]any
		want   []string
	}{
		{"no slice", "agents", nil, nil},
		{"both families, sorted, once each", "agents", []map[string]any{
			slice("a", "IPv6", agents, endpoint("fd00::2"), endpoint("fd00::1")),
			slice("b", "IPv4", agents, endpoint("10.0.0.2"), endpoint("10.0.0.1")),
			slice("c", "IPv4", agents, endpoint("10.0.0.1")),
			foreign, elsewhere,
		}, []string{"10.0.0.1:8443", "10.0.0.2:8443", "[fd00::1]:8443", "[fd00::2]:8443"}},
		{"conditions", "agents", []map[string]any{slice("a", "IPv4", agents,
			endpoint("10.0.0.1"),
			endpoint("10.0.0.2", "ready", true),
			endpoint("10.0.0.3", "ready", false, "serving", true, "terminating", true),
			endpoint("10.0.0.4", "ready", false, "serving", false, "terminating", true),
			endpoint("10.0.0.5", "ready", false),
			endpoint("10.0.0.6", "ready", false, "serving", false))},
			[]string{"10.0.0.1:8443", "10.0.0.2:8443", "10.0.0.3:8443"}},
		{"a number", "7000", []map[string]any{slice("a", "IPv4", agents, endpoint("10.0.0.1"))}, []string{"10.0.0.1:7000"}},
		{"not a port's number", "70000", []map[string]any{slice("a", "IPv4", agents, endpoint("10.0.0.1"))}, nil},
		{"another name", "peers", []map[string]any{slice("a", "IPv4", agents, endpoint("10.0.0.1"))}, nil},
		{"the only one", "", []map[string]any{slice("a", "IPv4", one, endpoint("10.0.0.1"))}, []string{"10.0.0.1:8443"}},
		{"not the only one", "", []map[string]any{slice("a", "IPv4", agents, endpoint("10.0.0.1"))}, nil},
		{"names", "agents", []map[string]any{slice("a", "FQDN", agents, endpoint("example.com"))}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := apitest.New(t)
			for _, object := range tt.slices {
				api.Set("endpointslices", object)
			}
			got := make(chan []string, 10)
			start(t, watchSlices(t, api, tt.port, got, nil))
			if addresses := receive(t, got, "the addresses"); !cmp.Equal(addresses, tt.want) {
				t.Errorf("got %q, want %q", addresses, tt.want)
			}
		})
	}
}

func TestEndpointSlicesChange(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	ports := []any{port("agents", 8443, "TCP")}
	set := func(name string, endpoints ...any) {
		api.Set("endpointslices", slice(name, "IPv4", ports, endpoints...))
	}
	set("a", endpoint("10.0.0.1"))
	got, errs := make(chan []string, 100), make(chan error, 100)
	stop := start(t, watchSlices(t, api, "agents", got, errs))
	wants := func(what string, want ...string) {
		t.Helper()
		if addresses := receive(t, got, what); !cmp.Equal(addresses, want) {
			t.Errorf("%s: got %q, want %q", what, addresses, want)
		}
	}
	wants("at once", "10.0.0.1:8443")
	key := apitest.Named("endpointslices", namespace, "a")
	for n := range 50 {
		api.Change(key, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"n": fmt.Sprint(n)}) })
	}
	set("b", endpoint("10.0.0.1"))
	set("c", endpoint("10.0.0.2"))
	wants("what means nothing, and another replica", "10.0.0.1:8443", "10.0.0.2:8443")
	away(api)
	receive(t, errs, "the error of the watch")
	if len(got) > 0 {
		t.Errorf("got %q while the API server was away, want what was", <-got)
	}
	api.SetFault(nil)
	api.Remove(key)
	api.Remove(apitest.Named("endpointslices", namespace, "b"))
	wants("a replica that went meanwhile", "10.0.0.2:8443")
	api.Remove(apitest.Named("endpointslices", namespace, "c"))
	wants("no replica")
	stop()
	if len(got) > 0 {
		t.Errorf("got %q at the end", <-got)
	}
}

// Who comes first when the API server is away waits for it.
func TestEndpointSlicesLate(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Set("endpointslices", slice("a", "IPv4", []any{port("", 1, "TCP")}, endpoint("10.0.0.1")))
	api.SetFault(func(*http.Request) int { return http.StatusInternalServerError })
	got, errs := make(chan []string, 10), make(chan error, 100)
	start(t, watchSlices(t, api, "", got, errs))
	receive(t, errs, "the error of the list")
	api.SetFault(nil)
	if addresses := receive(t, got, "the addresses"); !cmp.Equal(addresses, []string{"10.0.0.1:1"}) {
		t.Errorf("got %q", addresses)
	}
}

// inZone is an endpoint of a node with that zone.
func inZone(zone, address string, conditions ...any) map[string]any {
	e := endpoint(address, conditions...)
	e["zone"] = zone
	return e
}

// The zones of the replicas are those of the endpoints. If only a zone changes, set is called.
func TestEndpointSlicesZones(t *testing.T) {
	api := apitest.New(t)
	ports := []any{port("", 1, "TCP")}
	api.Set("endpointslices", slice("a", "IPv4", ports, inZone("east", "10.0.0.1"), inZone("west", "10.0.0.2"), endpoint("10.0.0.3"),
		inZone("west", "10.0.0.4", "ready", false)))
	api.Set("endpointslices", slice("b", "IPv4", ports, endpoint("10.0.0.1"))) // of an older controller
	api.Set("endpointslices", slice("c", "IPv6", ports, inZone("east", "fd00::1")))
	s := kubernetes.EndpointSlices{Client: client(t, api), Namespace: namespace, Service: "tunnel"}
	got := make(chan map[string]string, 10)
	start(t, func(ctx context.Context) error {
		return s.Watch(ctx, func(zones map[string]string) { got <- zones })
	})
	want := map[string]string{"10.0.0.1:1": "east", "10.0.0.2:1": "west", "10.0.0.3:1": "", "[fd00::1]:1": "east"}
	if diff := cmp.Diff(want, receive(t, got, "the zones")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	api.Set("endpointslices", slice("d", "IPv4", ports, inZone("west", "10.0.0.3")))
	want["10.0.0.3:1"] = "west"
	if diff := cmp.Diff(want, receive(t, got, "a zone that was unknown")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestEndpointSlicesOfNothing: a mistyped Service is an error, and one that is made late is not.
func TestEndpointSlicesOfNothing(t *testing.T) {
	for _, late := range []bool{false, true} {
		missing := time.Second
		if late {
			missing = time.Hour
		}
		reset := kubernetes.SetMissingTime(missing)
		api := apitest.New(t)
		told := make(chan error, 1)
		s := kubernetes.EndpointSlices{Client: client(t, api), Namespace: namespace, Service: "tunnel", Error: func(err error) { told <- err }}
		ctx, cancel := context.WithCancel(t.Context())
		sets := make(chan map[string]string, 2)
		ended := make(chan error, 1)
		go func() { ended <- s.Watch(ctx, func(zones map[string]string) { sets <- zones }) }()
		if got := <-sets; len(got) != 0 {
			t.Errorf("got %v, want no replica", got)
		}
		if late {
			api.Set("endpointslices", slice("a", "IPv4", []any{port("", 8443, "TCP")}, endpoint("10.0.0.1")))
			if got := <-sets; len(got) != 1 {
				t.Errorf("got %v, want a replica", got)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		} else {
			want := `the Service "tunnel" in the Namespace "` + namespace + `" has no EndpointSlice`
			for _, err := range []error{<-told, <-ended} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s", err, want)
				}
			}
		}
		cancel()
		reset()
	}
}

// TestEndpointSlicesForbidden: a Service whose slices can't be read is not called missing.
func TestEndpointSlicesForbidden(t *testing.T) {
	defer kubernetes.SetMissingTime(time.Millisecond)()
	api := apitest.New(t)
	api.Set("endpointslices", slice("a", "IPv4", []any{port("", 8443, "TCP")}, endpoint("10.0.0.1")))
	api.SetFault(func(*http.Request) int { return http.StatusForbidden })
	told := make(chan error, 10)
	s := kubernetes.EndpointSlices{Client: client(t, api), Namespace: namespace, Service: "tunnel", Error: func(err error) { told <- err }}
	sets := make(chan map[string]string, 1)
	start(t, func(ctx context.Context) error {
		return s.Watch(ctx, func(zones map[string]string) { sets <- zones })
	})
	for range 2 {
		if err := receive(t, told, "an error"); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want what the API server says", err)
		}
	}
	api.SetFault(nil)
	if got := receive(t, sets, "the replica"); len(got) != 1 {
		t.Errorf("got %v, want the replica", got)
	}
}
