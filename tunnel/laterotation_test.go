package tunnel_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A source may replace a certificate seconds before its end: sessions with the
// next one are there in time, and no stream ends.
func TestLateRotation(t *testing.T) {
	for _, left := range []time.Duration{30 * time.Second, 4900 * time.Millisecond, 3 * time.Second, 2 * time.Second} {
		t.Run(left.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newTrustDomain(t, "corp.example")
				m := newMesh(t)
				for _, name := range []string{"a", "b"} {
					m.serve(name, &tunnel.Server{Identify: d.identify, Hooks: tunnel.Hooks{
						Disconnected: func(_ tunnel.SessionInfo, err error) {
							if err != nil {
								t.Errorf("%s: a session ended: %v", name, err)
							}
						},
					}})
				}
				m.balance(alternate())
				source := &svidSource{d: d}
				a := m.agent(&tunnel.Agent{GetClientCertificate: source.get, Invitation: pinned(m.bed("a"))})
				m.meets(a, "a", "b")
				one, two := m.bed("a").echo(), m.bed("b").echo()
				defer one.Close()
				defer two.Close()

				end := a.Status().Expires
				source.set(true, nil)
				time.Sleep(time.Until(end) - left)
				source.set(false, nil)
				time.Sleep(left + time.Second)
				if st := a.Status(); !st.Expires.After(end) {
					t.Errorf("got a certificate that ends at %v, the same", st.Expires)
				}
				checkEcho(t, one)
				checkEcho(t, two)
			})
		})
	}
}
