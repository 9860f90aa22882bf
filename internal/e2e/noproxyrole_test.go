package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type noProxyInput struct {
	Tool  string // curl or wget
	Dir   string // for files
	Ports []string
	Cases []noProxyCase
}

// A noProxyCase is a URL, ending in a slash, that is asked for with a list in
// the environment.
type noProxyCase struct {
	NoProxy, URL string
}

// noProxyRole asks a program for each URL and answers where it went: viaProxy,
// direct, or an empty string if it refused the URL. The role runs in
// namespaces of its own, in which every address is its own and every name has
// one.
func noProxyRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input noProxyInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("no-proxy role: input: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := ownAllAddresses(ctx, input.Dir); err != nil {
		return err
	}
	var r recorder
	if err := r.listen(input.Ports); err != nil {
		return err
	}
	verdicts := make([]string, len(input.Cases))
	for _, batch := range batches(input.Cases) {
		fetch(ctx, input, &r, batch...)
		for _, i := range batch {
			if verdicts[i] = r.take(input.id(i)); verdicts[i] != "" {
				continue
			}
			// It came nowhere. Alone, its exit code tells why.
			exit := fetch(ctx, input, &r, i)
			if slices.Contains(notConnected[input.Tool], exit) {
				verdicts[i] = direct
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no-proxy role: %s: %w", input.Tool, ctx.Err())
		}
	}
	return json.NewEncoder(out).Encode(verdicts)
}

// notConnected are the exit codes for a name that has no address, and for an
// address that cannot be connected to. The proxy has one and can be: whoever
// ends so was on the direct way.
var notConnected = map[string][]int{"curl": {6, 7}, "wget": {4}}

// id is what the recorder knows a case's request by.
func (in *noProxyInput) id(i int) string {
	if strings.HasPrefix(in.Cases[i].URL, "https:") {
		return hidden
	}
	return strconv.Itoa(i)
}

// ownAllAddresses makes every address one of this host, and every lookup one by
// the recorder's name server.
func ownAllAddresses(ctx context.Context, dir string) error {
	for _, args := range []string{
		"link set lo up",
		"link add eth0 type veth peer name eth1", // the zone of some URLs
		"link set eth0 up",
		"addr add fe80::1/64 dev eth0 nodad",
		"route add local 0.0.0.0/0 dev lo",
		"-6 route add local ::/0 dev lo",
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	for name, content := range map[string]string{
		"resolv.conf":   "nameserver 127.0.0.1\n",
		"nsswitch.conf": "hosts: files dns\n",
		"hosts":         "127.0.0.1 localhost\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(path, filepath.Join("/etc", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount /etc/%s: %w", name, err)
		}
	}
	return nil
}

// batches groups the cases that one process can serve: those that have a list
// in common, but each of those that the recorder cannot tell from others.
func batches(cases []noProxyCase) [][]int {
	var all [][]int
	byList := map[string]int{} // the index in all
	for i, c := range cases {
		n, ok := byList[c.NoProxy]
		switch {
		case strings.HasPrefix(c.URL, "https:"):
			all = append(all, []int{i})
		case ok:
			all[n] = append(all[n], i)
		default:
			byList[c.NoProxy] = len(all)
			all = append(all, []int{i})
		}
	}
	return all
}

var fetchers = map[string][]string{
	"curl": {"curl", "--disable", "--silent", "--globoff", "--insecure", "--max-time", "5"},
	"wget": {"wget", "--no-config", "--quiet", "--output-document=/dev/null",
		"--no-hsts", "--no-check-certificate", "--tries=1", "--timeout=5"},
}

// fetch runs the program for cases with one list and returns its exit code.
func fetch(ctx context.Context, in noProxyInput, r *recorder, cases ...int) int {
	argv := fetchers[in.Tool]
	for _, i := range cases {
		argv = append(argv[:len(argv):len(argv)], in.Cases[i].URL+strconv.Itoa(i))
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	proxy := "http://" + r.proxy
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8",
		"http_proxy=" + proxy, "https_proxy=" + proxy, "no_proxy=" + in.Cases[cases[0]].NoProxy,
	}
	cmd.Run() // fails where it gets nothing
	return cmd.ProcessState.ExitCode()
}
