package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// roles are what the test binary can do in a process of its own, in a
// namespace of the bed.
var roles = map[string]bed.Role{
	"agent":               agentRole,
	"bridge":              bridgeRole,
	"client":              clientRole,
	"connect-cache":       cacheRole,
	"cluster-api":         clusterAPIRole,
	"cluster-api-manager": capiRole,
	"crash":               crashRole,
	"dial":                dialRole,
	"cluster-cache":       clusterCacheRole,
	"get":                 getRole,
	"hub":                 hubRole,
	"informer":            informerRole,
	"kubeconfig-provider": providerRole,
	"no-proxy":            noProxyRole,
	"proxy-command":       proxyCommandRole,
	"targets":             targetsRole,
	"requests":            requestsRole,
	"through":             throughRole,
}

type dialInput struct {
	Address string
}

type dialAnswer struct {
	Connected bool
	NoRoute   bool // the kernel knew no way
	Err       string
}

// dialRole dials directly and answers what came of it.
func dialRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input dialInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("dial role: input: %w", err)
	}
	var answer dialAnswer
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", input.Address)
	if err != nil {
		answer.Err = err.Error()
		answer.NoRoute = errors.Is(err, syscall.ENETUNREACH)
	} else {
		answer.Connected = true
		conn.Close()
	}
	return json.NewEncoder(out).Encode(answer)
}

type crashAnswer struct {
	Namespaces []string
	Dir        string
}

// crashRole starts a bed, says what it is made of, and panics.
func crashRole(ctx context.Context, _ io.Reader, out io.Writer) error {
	b, err := bed.Start(ctx)
	if err != nil {
		return err
	}
	answer := crashAnswer{Dir: b.Dir}
	for _, ns := range []*bed.Namespace{b.Network.Client, b.Network.Proxy, b.Network.API, b.Network.Hub} {
		answer.Namespaces = append(answer.Namespaces, ns.Name)
	}
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		return err
	}
	panic("as the test wants it")
}
