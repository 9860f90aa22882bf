package injector

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/proxyconfig"
)

// mount makes a directory as the kubelet mounts a Secret, and swaps what is in
// it at once.
func mount(t *testing.T, dir, version string, values map[string]string) {
	t.Helper()
	data := filepath.Join(dir, version)
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(data, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(version, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "..1", map[string]string{"HTTP_PROXY": "http://one\n", "NO_PROXY": "a"})
	d := directory(dir)
	first, err := d.read()
	if want := (proxyconfig.Config{HTTPProxy: "http://one", NoProxy: "a"}); err != nil || first != want {
		t.Fatalf("got %v, %v; want %v", first, err, want)
	}
	expect := func(t *testing.T, told chan string, do func(), want ...string) {
		t.Helper()
		do()
		time.Sleep(5 * every) // of the bubble
		synctest.Wait()
		var got []string
		for len(told) > 0 {
			got = append(got, <-told)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("want - got +:\n%s", diff)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 10)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.follow(ctx, first, func(c proxyconfig.Config, err error) {
				if err != nil {
					told <- "error"
					return
				}
				told <- c.HTTPProxy
			})
		}()
		time.Sleep(every / 2) // to write between two looks
		expect(t, told, func() {})
		expect(t, told, func() { mount(t, dir, "..2", map[string]string{"HTTP_PROXY": "http://two"}) }, "http://two")
		expect(t, told, func() { mount(t, dir, "..3", nil) }, "error")
		expect(t, told, func() { mount(t, dir, "..4", map[string]string{"HTTP_PROXY": "http://two"}) }, "http://two")
		// What changes at each look is not taken up before it stays.
		expect(t, told, func() {
			for n := range 3 {
				mount(t, dir, "..half"+string(rune('a'+n)), map[string]string{"HTTP_PROXY": "http://" + string(rune('a'+n))})
				time.Sleep(every)
			}
		}, "http://c")
		cancel()
		<-ended
	})
}
