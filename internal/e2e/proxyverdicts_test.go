package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/proxyconfig"
)

// A directServer keeps the hosts that it is asked for.
type directServer struct {
	mu   sync.Mutex // guards the field below
	seen []string
}

func (s *directServer) serve(t *testing.T, l net.Listener) {
	h := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, r.Host)
	})}}
	h.Start()
	t.Cleanup(h.Close)
}

// take returns the hosts since it was called before.
func (s *directServer) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := slices.Compact(slices.Sorted(slices.Values(s.seen)))
	s.seen = nil
	return seen
}

const (
	pythonOpensAll = `import sys, requests
for url in sys.argv[1:]:
    try: requests.get(url, timeout=30)
    except OSError as e: print(e)
`
	// Gradle and others give the JVM the password in this way.
	javaOpensAll = `import java.net.*;

public class Open {
    public static void main(String[] urls) throws Exception {
        Authenticator.setDefault(new Authenticator() {
            protected PasswordAuthentication getPasswordAuthentication() {
                return new PasswordAuthentication(System.getProperty("http.proxyUser"), System.getProperty("http.proxyPassword").toCharArray());
            }
        });
        for (String url : urls) {
            try {
                ((HttpURLConnection) new URL(url).openConnection()).getResponseCode();
            } catch (java.io.IOException e) {
                System.out.println(e);
            }
        }
    }
}
`
)

// checkVerdicts runs programs in the pod's network, with its environment: Services
// and pods they reach directly, and all else by the proxy with the password.
func (p *proxied) checkVerdicts(t *testing.T, pod proxiedPod, f passwordForm) {
	t.Helper()
	host, _, err := p.AddHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	arguments, _, err := proxyconfig.Config{HTTPProxy: pod.env["HTTP_PROXY"], HTTPSProxy: pod.env["HTTPS_PROXY"], NoProxy: pod.env["NO_PROXY"]}.JVMArguments()
	if err != nil {
		t.Fatal(err)
	}
	dir := sharedDir(t)
	writeFile(t, filepath.Join(dir, "hosts"), "127.0.0.1 localhost\n"+webServiceIP+" "+strings.Join(insideNames, " ")+"\n")
	writeFile(t, filepath.Join(dir, "arguments"), arguments)
	writeFile(t, filepath.Join(dir, "Open.java"), javaOpensAll)
	inside := append([]string{webServiceIP, p.pod}, insideNames...)
	slices.Sort(inside)
	urls := []string{"http://" + outside + "/"}
	for _, name := range inside {
		urls = append(urls, "http://"+name+"/")
	}
	var env []string
	for name, value := range pod.env {
		env = append(env, name+"="+value)
	}
	for _, program := range []struct {
		name string
		argv []string
		env  []string
	}{
		{"Go", []string{self}, append(env, bed.RoleEnv+"=get", "GORACE=atexit_sleep_ms=0")},
		{"curl", []string{"curl", "-sS"}, env},
		{"Python", []string{"python3", "-c", pythonOpensAll}, env},
		{"Java", []string{"java", "-XX:TieredStopAtLevel=1", "@" + filepath.Join(dir, "arguments"), filepath.Join(dir, "Open.java")}, nil},
	} {
		argv := append([]string{"sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, filepath.Join(dir, "hosts")}, program.argv...)
		running, err := host.Start(t.Context(), bed.Command{Argv: append(argv, urls...), Env: program.env})
		if err != nil {
			t.Fatal(err)
		}
		err = running.Wait()
		if got := p.direct.take(); !slices.Equal(got, inside) {
			t.Errorf("%s: got %q directly, want %q; %v\n%s", program.name, got, inside, err, running.Stdout())
		}
		if got, want := p.proxy.take(), []string{outside + " us@er " + f.password}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q by the proxy, want %q; %v\n%s", program.name, got, want, err, running.Stdout())
		}
	}
}
