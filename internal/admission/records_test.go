package admission_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/internal/admission"
)

// TestRecords: what a client may send before it is let in, in records, and as much as it likes
// after that.
func TestRecords(t *testing.T) {
	for _, tt := range []struct {
		name  string
		then  func(*admission.Place) // after the handshake
		sizes []int                  // of records, with their headers
		want  string                 // of the error; "": all comes
	}{
		{"in the handshake", nil, []int{600, 700, 5}, ""},
		{"too much in it", nil, []int{600, 16_000}, "more than"},
		{"after it", func(p *admission.Place) { p.End(3000) }, []int{1000, 2000}, ""},
		{"too much after it", func(p *admission.Place) { p.End(3000) }, []int{1000, 2001}, "more than 3000 bytes"},
		{"a refused one", func(p *admission.Place) { p.End(9000); p.Limit(2000) }, []int{1000, 1001}, "more than 2000 bytes"},
		{"one that has its place", func(p *admission.Place) { p.Prove(); p.Settle(true) }, []int{16_000, 16_000}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				p, err := admission.New(1, 0).Enter(t.Context(), from{near, "192.0.2.1:1"})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Leave()
				p.Begin()
				p.Reach(admission.Greeting)
				if tt.then != nil {
					tt.then(p)
				}
				conn, total := &admission.Conn{Conn: near, Place: p}, 0
				for _, size := range tt.sizes {
					total += size
				}
				go func() {
					for _, size := range tt.sizes {
						far.Write(append([]byte{22, 3, 3, byte((size - 5) >> 8), byte(size - 5)}, make([]byte, size-5)...))
					}
				}()
				n, err := io.ReadFull(conn, make([]byte, total))
				if tt.want == "" && (n != total || err != nil) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("got %d of %d bytes, %v; want %q", n, total, err, tt.want)
				}
			})
		})
	}
}
