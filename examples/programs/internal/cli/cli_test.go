package cli_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		life time.Duration
		list []string
		rest []string
		err  string
	}{
		{"defaults", nil, nil, time.Hour, nil, nil, ""},
		{"flags on both sides", nil, []string{"--life", "1s", "A", "--list", "a,b", "B", "--list=c"}, time.Second, []string{"a", "b", "c"}, []string{"A", "B"}, ""},
		{"variables", map[string]string{"CAUSEWAY_LIFE": "2s", "CAUSEWAY_LIST": "a, b,"}, []string{"A"}, 2 * time.Second, []string{"a", "b"}, []string{"A"}, ""},
		{"variables of a Secret made from files", map[string]string{"CAUSEWAY_LIFE": "2s\n", "CAUSEWAY_LIST": "a\r\n"}, nil, 2 * time.Second, []string{"a"}, nil, ""},
		{"a flag counts more", map[string]string{"CAUSEWAY_LIFE": "2s", "CAUSEWAY_LIST": "x"}, []string{"--life=3s", "--list=y"}, 3 * time.Second, []string{"y"}, nil, ""},
		{"bad variable", map[string]string{"CAUSEWAY_LIFE": "canary"}, nil, time.Hour, nil, nil, "CAUSEWAY_LIFE"},
		{"bad flag", nil, []string{"--life", "x"}, time.Hour, nil, nil, "life"},
		{"unknown flag", nil, []string{"A", "--nonsense"}, time.Hour, nil, nil, "unknown flag --nonsense"},
		{"mistyped flag", nil, []string{"--lif", "1s"}, time.Hour, nil, nil, "unknown flag --lif"},
		{"one dash", nil, []string{"-life=1s"}, time.Hour, nil, nil, "unknown flag -life: flags have two dashes: --life"},
		{"one dash and the letter of help", nil, []string{"-health", "x"}, time.Hour, nil, nil, "unknown flag -health: flags have two dashes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			set := pflag.NewFlagSet("some-program", pflag.ContinueOnError)
			life := set.Duration("life", time.Hour, "")
			var list cli.List
			set.Var(&list, "list", "")
			err := cli.Parse(set, tt.args)
			var mistake cli.UsageError
			if tt.err != "" {
				if !errors.As(err, &mistake) || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "canary") {
					t.Errorf("got %v, want a UsageError with %s", err, tt.err)
				}
				return
			}
			if err != nil || *life != tt.life || !slices.Equal(list, tt.list) || !slices.Equal(set.Args(), tt.rest) {
				t.Errorf("got %v, %v, %v, %v; want %v, %v, %v", *life, list, set.Args(), err, tt.life, tt.list, tt.rest)
			}
		})
	}
}

// What is on the command line counts more than the variable of its alternative, and an error names
// what was given.
func TestExclude(t *testing.T) {
	for _, tt := range []struct {
		name, env, args string
		want            string // the flags' values, or an error
	}{
		{"a variable beside a flag", "CAUSEWAY_B=v", "--a x", "x  false"},
		{"and the other way round", "CAUSEWAY_A=v CAUSEWAY_ALL=true", "--b x", " x false"},
		{"a flag of no value", "CAUSEWAY_B=v", "--a=", " v false"},
		{"a switch that is off", "CAUSEWAY_B=v", "--all=false", " v false"},
		{"a variable of no value", "CAUSEWAY_A= CAUSEWAY_B=v CAUSEWAY_ALL=false", "", " v false"},
		{"both flags", "CAUSEWAY_A=v", "--b x --a y", "--a and --b exclude each other: leave one out"},
		{"a switch", "", "--all --b x", "--all and --b exclude each other: leave one out"},
		{"both variables", "CAUSEWAY_A=v CAUSEWAY_B=v", "", "CAUSEWAY_A and CAUSEWAY_B exclude each other: leave one out"},
		{"a bad variable that does not count", "CAUSEWAY_ALL=soon", "--b x", " x false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for pair := range strings.FieldsSeq(tt.env) {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			set := pflag.NewFlagSet("some-program", pflag.ContinueOnError)
			a, b, all := set.String("a", "", ""), set.String("b", "", ""), set.Bool("all", false, "")
			cli.Exclude(set, "b", "a", "all")
			err := cli.NameSources(set, cli.Parse(set, strings.Fields(tt.args)))
			got := fmt.Sprint(*a, " ", *b, " ", *all)
			var mistake cli.UsageError
			if errors.As(err, &mistake) {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestServeHTTP(t *testing.T) {
	if l, err := cli.Listen(t.Context(), ""); l != nil || err != nil {
		t.Errorf("got %v, %v for no address, want neither", l, err)
	}
	l, err := cli.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- cli.ServeHTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	}()
	res, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if string(body) != "hello" {
		t.Errorf("got %q, want hello", body)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("got %v at the end, want nil", err)
	}
	l, err = cli.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := cli.ServeHTTP(t.Context(), l, nil); err == nil {
		t.Error("got nil for a listener that is closed, want its error")
	}
}

// A page on loopback is not read by a name that a stranger's DNS server has led here.
func TestServeHTTPHosts(t *testing.T) {
	l, err := cli.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- cli.ServeHTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST.:" + port: 200, "a.localhost:" + port: 200, "127.0.0.1": 200, "127.0.0.1:" + port: 200,
		"[::1]:" + port: 200, "[::1]": 200, "10.1.2.3:1": 200, "[fe80::1%25eth0]:80": 200, "": 200,
		"evil.test": 421, "evil.test:" + port: 421, "localhost.evil.test": 421, "127.0.0.1.nip.io": 421, "notlocalhost": 421, "2130706433": 421, "xn--localhost": 421, "localhost@evil.test": 400,
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		conn.Close()
		if res.StatusCode != want || (string(body) == "hello") != (want == 200) || want == 421 && !strings.Contains(string(body), "Host: localhost") {
			t.Errorf("%q: got %d, %q; want %d", host, res.StatusCode, body, want)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
