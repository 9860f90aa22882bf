package status_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := session("default/prod-2", "2")
		remote.Remote = "198.51.100.7:1234"
		f := fleet{
			server("alpha", session("default/prod-1", "1"), remote, gone("default/stage")),
			server("beta", session("default/prod-1", "3"), gone("default/prod-2")),
		}
		f[0].Status.Clusters[2].LastError = "tunnel: Connection reset"
		h := &status.Handler{Fleet: f.get}
		for _, tt := range []struct {
			uri  string
			want []string
		}{
			{"/", []string{"default/stage", "default/prod-2", "default/prod-1"}},
			{"/?q=PROD", []string{"default/prod-2", "default/prod-1"}},
			{"/?q=prod+beta", []string{"default/prod-1"}},
			{"/?q=alpha", []string{"default/prod-2", "default/prod-1"}},
			{"/?q=agent-default/prod-1", []string{"default/prod-1"}},
			{"/?q=198.51.100.7", []string{"default/prod-2"}},
			{"/?q=connection%20RESET", []string{"default/stage"}},
			{"/?q=no%20agent", []string{"default/stage"}},
			{"/?q=nothing", nil},
			{"/?q=%20%20", []string{"default/stage", "default/prod-2", "default/prod-1"}},
			{"/?state=down", []string{"default/stage"}},
			{"/?state=trouble", []string{"default/stage", "default/prod-2"}},
			{"/?state=ok", []string{"default/prod-1"}},
			{"/?state=failing", nil},
			{"/?state=other", []string{"default/stage", "default/prod-2", "default/prod-1"}},
			{"/?state=trouble&q=prod", []string{"default/prod-2"}},
		} {
			for _, prefix := range []string{"/", "/live"} {
				uri := prefix + strings.TrimPrefix(tt.uri, "/")
				if got := names(t, get(t, h, uri)); !slices.Equal(got, tt.want) {
					t.Errorf("%s: got %q, want %q", uri, got, tt.want)
				}
			}
		}
		page := get(t, h, "/?q=prod&state=alone")
		var got []string
		for _, a := range all(all(page, ".filters")[0], "a") {
			got = append(got, text(a)+attr(a, "aria-current"))
		}
		if want := []string{"All 2", "Not OK 1", "✕ No agent 0", "→ Draining 0", "! Dials fail 0", "1 One replica 1true", "✓ OK 1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if current := all(get(t, h, "/?state=other"), ".filters")[0]; attr(all(current, "a")[0], "aria-current") != "true" {
			t.Error("got another filter for a state that there is none of, want all")
		}
		kept := map[string]string{}
		for _, input := range all(page, "input") {
			kept[attr(input, "name")] = attr(input, "value")
		}
		if kept["q"] != "prod" || kept["state"] != "alone" {
			t.Errorf("got %v, want the form to keep all of the query", kept)
		}
	})
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions []tunnel.SessionInfo
		for i := range 2*status.PerPage + 5 {
			sessions = append(sessions, session(fmt.Sprintf("c%03d", i), fmt.Sprint(i)))
		}
		f := fleet{server("r", sessions...)}
		h := &status.Handler{Fleet: f.get}
		seen, uri := []string(nil), "/?q=c"
		for uri != "" {
			page := get(t, h, uri)
			seen = append(seen, names(t, page)...)
			uri = ""
			for _, a := range all(all(page, ".pages")[0], "a") {
				if attr(a, "rel") == "next" {
					uri = strings.TrimPrefix(attr(a, "href"), ".")
				}
			}
		}
		if len(seen) != len(sessions) || !slices.IsSorted(seen) || len(slices.Compact(seen)) != len(sessions) {
			t.Errorf("got %d clusters on the pages, want each of %d once", len(seen), len(sessions))
		}
		if first := all(all(get(t, h, "/"), ".pages")[0], "a"); len(first) != 1 || attr(first[0], "rel") != "next" {
			t.Errorf("got %d links on the first page, want the next alone", len(first))
		}
		if got := attr(all(get(t, h, "/?q="+strings.Repeat("ü", 150)), "input")[0], "value"); got != strings.Repeat("ü", 100) {
			t.Errorf("got a query of %d bytes, want 200", len(got))
		}
		for uri, want := range map[string]string{
			"/?page=3": "201 to 205 of 205 clusters", "/?page=99": "201 to 205 of 205 clusters", "/?page=-1": "1 to 100 of 205 clusters",
			"/?page=x": "1 to 100 of 205 clusters", "/?q=c007": "1 to 1 of 1 cluster", "/?q=none": "No cluster matches.",
		} {
			if got := text(all(get(t, h, uri), ".where")[0]); !strings.HasPrefix(got, want) {
				t.Errorf("%s: got %q, want %q", uri, got, want)
			}
		}
	})
}
