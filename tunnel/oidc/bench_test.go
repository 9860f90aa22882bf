package oidc_test

import (
	"context"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// BenchmarkJoin has 1,000 agents join from 1,000 issuers, whose keys are fetched, all at
// once: go test -run '^$' -bench Join -benchtime 1x
func BenchmarkJoin(b *testing.B) {
	const agents = 1000
	k := newECDSA(b, elliptic.P256())
	issuers := newIssuerServer(b)
	s := newIssuers(b)
	urls := make([]string, agents)
	for n := range urls {
		urls[n] = issuers.add("i"+strconv.Itoa(n), k)
		if err := s.Register(issuers.registration(fmt.Sprintf("fleet/c%d", n), urls[n])); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		authority, err := tunnel.NewAuthority()
		if err != nil {
			b.Fatal(err)
		}
		server := &tunnel.Server{Authority: authority, Enroller: s, Grace: -1}
		address := serve(b, server)
		issuers.fetches.Store(0)
		before, began := residentBytes(b), time.Now()
		ctx, cancel := context.WithCancel(b.Context())
		var joined, running sync.WaitGroup
		for n, url := range urls {
			joined.Add(1)
			running.Go(func() {
				a := joiningAgent(address, authority.Pin(), fmt.Sprintf("fleet/c%d", n), func() string { return k.token(url, nil) })
				var once sync.Once
				a.Hooks.Connected = func(string, tunnel.Identity) {
					once.Do(func() {
						joined.Done()
					})
				}
				if err := a.Run(ctx); err != nil {
					b.Error(err)
				}
			})
		}
		joined.Wait()
		took, after := time.Since(began), residentBytes(b)
		b.ReportMetric(took.Seconds(), "s/1000-agents")
		b.ReportMetric(float64(issuers.fetches.Load())/agents, "requests/issuer")
		b.ReportMetric(float64(after-before)/agents/1024, "KiB/agent+issuer")
		cancel()
		running.Wait()
	}
}

// joiningAgent is one that has a token for each attempt.
func joiningAgent(address, pin, cluster string, token func() string) *tunnel.Agent {
	return &tunnel.Agent{
		Servers: []string{address}, Credentials: &tunnel.MemoryCredentials{}, Grace: -1,
		Invitation: func(context.Context) (tunnel.Invitation, error) {
			return tunnel.Invitation{Cluster: cluster, Token: token(), Pin: pin}, nil
		},
	}
}

// serve runs a server until the test ends.
func serve(t testing.TB, s *tunnel.Server) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// residentBytes is the process's memory, after a collection.
func residentBytes(t testing.TB) int64 {
	t.Helper()
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("this system does not say how much memory a process has")
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// BenchmarkStrangers is what tokens cost that strangers make, each another one.
func BenchmarkStrangers(b *testing.B) {
	good, stranger := newRSA(b), newRSA(b)
	issuers := newIssuerServer(b)
	url := issuers.add("a", good)
	s := newIssuers(b, issuers.registration("prod/a", url))
	if _, err := s.Enroll(b.Context(), tunnel.Enrollment{Cluster: "prod/a", Token: good.token(url, nil), Key: anyKey}); err != nil {
		b.Fatal(err)
	}
	fake := func(header object, changes object) string { // a signature of the right size
		return stranger.sign(stranger.header().with(header).json(), claims(url).with(changes).json())
	}
	for _, test := range []struct {
		name, token string
	}{
		{"garbage", "aaaa.bbbb." + strings.Repeat("c", 8000)},
		{"audience", fake(nil, object{"aud": []string{"x"}})},
		{"unknown-key", fake(object{"kid": "x"}, nil)},
		{"signature", fake(object{"kid": good.id}, nil)},
		{"no-key-id", fake(object{"kid": nil}, nil)},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			issuers.fetches.Store(0)
			before := residentBytes(b)
			for b.Loop() {
				if _, err := s.Enroll(b.Context(), tunnel.Enrollment{Cluster: "prod/a", Token: test.token, Key: rand.Text()}); err == nil {
					b.Fatal("it was let in")
				}
			}
			b.ReportMetric(float64(issuers.fetches.Load()), "requests")
			b.ReportMetric(float64(residentBytes(b)-before)/1024, "KiB-kept")
		})
	}
}
