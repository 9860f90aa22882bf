package tunnel_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// TestParseStatus: what a replica says is read, unless it would need many times the memory.
func TestParseStatus(t *testing.T) {
	ended := &tunnel.EndedSession{}
	for name, c := range map[string]tunnel.ClusterStatus{
		"nothing known":  {Cluster: "a/b"},
		"a session":      {Cluster: "a/b", Connected: true, Sessions: []tunnel.SessionInfo{{Cluster: "a/b", Agent: "x", ID: "1"}}},
		"one that ended": {Cluster: "a/b", Last: ended},
		"texts":          {Cluster: "a/b", LastError: strings.Repeat(`{"{null,[null`, 70)},
	} {
		want := &tunnel.Status{Ready: true, Clusters: make([]tunnel.ClusterStatus, 1000)}
		for i := range want.Clusters {
			want.Clusters[i] = c
		}
		want.Failures = []tunnel.DialFailures{{Cluster: "a/b", Last: time.Unix(1, 0).UTC()}}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tunnel.ParseStatus(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got another one, or %v", name, err)
		}
	}
	for _, element := range []string{"{}", "null", " null", `{"sessions":[null,null,null]}`, `{"sessions":[{},{}]}`} {
		text := `{"clusters":[` + strings.Repeat(element+",", 10_000) + element + `]}`
		if _, err := tunnel.ParseStatus([]byte(text)); err == nil {
			t.Errorf("elements %s are read", element)
		}
	}
}
