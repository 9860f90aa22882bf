package prometheus_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

// The embedder's hooks are called, all of them, once, with what the tunnel says.
func TestHooksCallThrough(t *testing.T) {
	t.Run("server", func(t *testing.T) { checkThrough(t, (&metrics.Server{}).Hooks) })
	t.Run("agent", func(t *testing.T) {
		checkThrough(t, (&metrics.Agent{}).Hooks, "Connected", "Disconnected", "Enrolled", "Renewed")
	})
	t.Run("gateway", func(t *testing.T) { checkThrough(t, (&metrics.Gateway{}).Hooks) })
}

func checkThrough[H any](t *testing.T, wrap func(H) H, uncounted ...string) {
	var next H
	calls := map[string][][]reflect.Value{}
	fields := reflect.ValueOf(&next).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		fields.Field(i).Set(reflect.MakeFunc(fields.Field(i).Type(), func(args []reflect.Value) []reflect.Value {
			calls[name] = append(calls[name], args)
			return nil
		}))
	}
	if fields.NumField() == 0 {
		t.Fatal("there is no hook")
	}
	wrapped := reflect.ValueOf(wrap(next))
	var empty H
	alone := reflect.ValueOf(wrap(empty))
	for i := range wrapped.NumField() {
		name := wrapped.Type().Field(i).Name
		var args []reflect.Value
		for a := range wrapped.Field(i).Type().NumIn() {
			args = append(args, sampleOf(wrapped.Field(i).Type().In(a)))
		}
		wrapped.Field(i).Call(args)
		if len(calls[name]) != 1 {
			t.Errorf("%s: got %d calls, want 1", name, len(calls[name]))
			continue
		}
		for a, arg := range calls[name][0] {
			if !reflect.DeepEqual(arg.Interface(), args[a].Interface()) {
				t.Errorf("%s: got argument %d %v, want %v", name, a, arg, args[a])
			}
		}
		if alone.Field(i).IsNil() != slices.Contains(uncounted, name) {
			t.Errorf("%s: got it counted: %t", name, !alone.Field(i).IsNil())
		} else if !alone.Field(i).IsNil() {
			alone.Field(i).Call(args)
		}
	}
}

// sampleOf returns a value that is not the zero one where it is easy.
func sampleOf(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case t == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(errAny))
	case t.Kind() == reflect.String:
		v.SetString("name")
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		v.SetInt(7)
	case t.Kind() == reflect.Bool:
		v.SetBool(true)
	case t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Type.Kind() == reflect.String:
		v.Field(0).SetString("field")
	}
	return v
}

var (
	_ func(tunnel.Hooks) tunnel.Hooks           = (&metrics.Server{}).Hooks
	_ func(tunnel.AgentHooks) tunnel.AgentHooks = (&metrics.Agent{}).Hooks
	_ func(gateway.Hooks) gateway.Hooks         = (&metrics.Gateway{}).Hooks
)

// A hook of the embedder's takes nothing from what is counted.
func TestHooksCountBeside(t *testing.T) {
	m := &metrics.Server{Status: none}
	h := m.Hooks(tunnel.Hooks{
		Enrolled:     func(tunnel.Identity) {},
		Disconnected: func(tunnel.SessionInfo, error) {},
		Dialed:       func(string, time.Duration, error) {},
	})
	h.Enrolled(tunnel.Identity{})
	h.Disconnected(tunnel.SessionInfo{}, nil)
	h.Dialed("a", time.Second, nil)
	expect(t, scrape(t, registryOf(t, m)), map[string]float64{
		"causeway_tunnel_enrollments_total":                1,
		`causeway_tunnel_sessions_closed_total{code="ok"}`: 1,
		`causeway_tunnel_dials_total{code="ok"}`:           1,
	})
}
