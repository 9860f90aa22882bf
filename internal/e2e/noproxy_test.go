package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/noproxy"
)

// A noProxyVector is a line of the test vectors of package noproxy.
type noProxyVector struct {
	NoProxy string `json:"no_proxy"`
	Host    string `json:"host"`
	Port    string `json:"port"`
	Scheme  string `json:"scheme"`
	URL     string `json:"url"`
	Curl    *bool  `json:"want_curl_7_88_1"` // true is direct; nil, refused
	Curl8   *bool  `json:"want_curl"`        // of the version that noproxy.Curl models
	Wget    *bool  `json:"want_wget_1_21_3"`
}

func loadNoProxyVectors(t *testing.T) []noProxyVector {
	t.Helper()
	data, err := os.ReadFile("../../noproxy/testdata/noproxy.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []noProxyVector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 400 {
		t.Fatalf("got %d vectors, want at least 400", len(vectors))
	}
	for i, v := range vectors {
		if v.Port == "" {
			vectors[i].Port = map[string]string{"http": "80", "https": "443"}[v.Scheme]
		}
	}
	return vectors
}

// What curl and wget really do with a list is what the vectors say, and what
// package noproxy says of them. noproxy.Curl is curl 8.22, which reads IPv6
// networks, spaces and ports of networks in another way than Debian's 7.88:
// where the columns of the two differ, the list is none that both can be asked
// about.
func TestNoProxyVerdicts(t *testing.T) {
	vectors := loadNoProxyVectors(t)
	for _, tt := range []struct {
		tool, version string // the one that the column is of
		consumer      noproxy.Consumer
		want          func(noProxyVector) *bool
		modelled      func(noProxyVector) bool
	}{
		{
			"curl", "curl 7.88.1 ", noproxy.Curl,
			func(v noProxyVector) *bool { return v.Curl },
			func(v noProxyVector) bool { return v.Curl != nil && v.Curl8 != nil && *v.Curl == *v.Curl8 },
		},
		{
			"wget", "GNU Wget 1.21.3 ", noproxy.Wget,
			func(v noProxyVector) *bool { return v.Wget },
			func(v noProxyVector) bool { return v.Wget != nil },
		},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), tt.tool, "--version").Output()
			if err != nil || !strings.HasPrefix(string(out), tt.version) {
				t.Fatalf("got %.40q, %v; the vectors are of %q", out, err, tt.version)
			}
			agree, modelled := 0, 0
			for i, got := range noProxyVerdicts(t, tt.tool, vectors) {
				v, want := vectors[i], ""
				if verdict := tt.want(v); verdict != nil {
					want = map[bool]string{true: direct, false: viaProxy}[*verdict]
				}
				if got != want {
					t.Errorf("no_proxy=%q %s: got %q, want %q", v.NoProxy, v.URL, got, want)
					continue
				}
				agree++
				if !tt.modelled(v) {
					continue
				}
				modelled++
				if said := tt.consumer.Bypass(v.NoProxy, v.Host, v.Port); said != (got == direct) {
					t.Errorf("no_proxy=%q %s: went %q, noproxy says bypass=%t", v.NoProxy, v.URL, got, said)
				}
			}
			t.Logf("%d of %d verdicts agree; %d were compared with package noproxy", agree, len(vectors), modelled)
			if modelled < 370 {
				t.Errorf("%d verdicts were compared with package noproxy, want at least 370", modelled)
			}
		})
	}
}

func noProxyVerdicts(t *testing.T, tool string, vectors []noProxyVector) []string {
	t.Helper()
	input := noProxyInput{Tool: tool, Dir: t.TempDir()}
	for _, v := range vectors {
		input.Cases = append(input.Cases, noProxyCase{v.NoProxy, v.URL})
		if v.Port != "0" && !slices.Contains(input.Ports, v.Port) {
			input.Ports = append(input.Ports, v.Port)
		}
	}
	var got []string
	playAlone(t, "no-proxy", input, &got)
	if len(got) != len(vectors) {
		t.Fatalf("got %d verdicts, want %d", len(got), len(vectors))
	}
	return got
}

// playAlone plays a role without a bed: it has namespaces of its own, of the
// network with nothing but a loopback interface that is down, of mounts and of
// processes, which end with it.
func playAlone(t *testing.T, role string, in, out any) {
	t.Helper()
	c, err := bed.RoleCommand(role, in)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--"}, c.Argv...)
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.Env...)
	cmd.Stdin = c.Stdin
	var stderr strings.Builder
	cmd.Stderr = &stderr
	answer, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(answer, out)
	}
	if err != nil {
		t.Fatalf("role %s: %v; it answered %q\n%s", role, err, answer, &stderr)
	}
}
