package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/examples/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// A state is what servers and commands share.
type state interface {
	// server returns a Server that has the authority, made if there is none, and
	// the store.
	server(ctx context.Context) (*tunnel.Server, error)
	// read returns what is kept by a name; fs.ErrNotExist if nothing is.
	read(ctx context.Context, name string) ([]byte, error)
	// replace keeps it, whatever is there.
	replace(ctx context.Context, name string, data []byte) error
	// create keeps it if nothing is there; fs.ErrExist if something is.
	create(ctx context.Context, name string, data []byte) error

	setPayload(ctx context.Context, cluster string, p tunnel.Payload) error
	payloads(ctx context.Context, cluster string) ([]tunnel.Payload, error)
}

// What is kept by a name.
const (
	serversFile   = "servers"     // the addresses that agents are given, a line each
	ticketKeyFile = "tickets.key" // what signs tickets
	gatewayFile   = "gateway"     // the URL of the first door for tickets
)

// A follower is a state that tells the server by itself of what others write to
// it, revocations included.
type follower interface {
	// follow returns when ctx ends.
	follow(ctx context.Context, server *tunnel.Server)
}

type stateFlags struct{ dir, secrets, kubeconfig string }

func addStateFlags(set *flag.FlagSet) *stateFlags {
	f := new(stateFlags)
	set.StringVar(&f.dir, "state", "/var/lib/tunnel-server", "`directory` of the authority's key, tokens and revocations")
	set.StringVar(&f.secrets, "secrets", "", "`NAMESPACE/PREFIX` of Secrets that have it instead: what several servers share")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that leads to the cluster with the -secrets; default: the pod's own")
	return f
}

// open does not make an authority yet.
func (f *stateFlags) open(log *slog.Logger) (state, error) {
	if f.secrets == "" {
		st, err := openDir(f.dir)
		if err != nil {
			return nil, fmt.Errorf("tunnel-server: -state: %w", err)
		}
		st.warnIfPublic(log)
		return st, nil
	}
	namespace, prefix, ok := strings.Cut(f.secrets, "/")
	if wrong := validation.IsDNS1123Label(prefix); !ok || namespace == "" || len(wrong) > 0 {
		return nil, cli.UsageError{Text: fmt.Sprintf("tunnel-server: -secrets %q is not NAMESPACE/PREFIX", f.secrets)}
	}
	client, err := f.client()
	if err != nil {
		return nil, fmt.Errorf("tunnel-server: -kubeconfig: %w", err)
	}
	return newSecretState(client, namespace, prefix, log), nil
}

func (f *stateFlags) client() (kubernetes.Interface, error) {
	load := rest.InClusterConfig
	if f.kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", f.kubeconfig) }
	}
	config, err := load()
	if err != nil {
		return nil, err
	}
	rest.AddUserAgent(config, "tunnel-server")
	config.QPS, config.Burst = 100, 200 // agents enrol in crowds
	return kubernetes.NewForConfig(config)
}

// openServer opens the state for a command, beside a server that need not run.
// Closing the Server is needless: it serves nothing.
func (f *stateFlags) openServer(ctx context.Context) (state, *tunnel.Server, error) {
	st, err := f.open(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	server, err := st.server(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("tunnel-server: state: %w", err)
	}
	return st, server, nil
}

// checkServers returns a mistake in addresses that agents or replicas are to dial.
// It does not show them: a URL may hold a secret.
func checkServers(what string, addresses []string) error {
	for i, address := range addresses {
		if _, err := tunnel.TransportFor(address); err != nil {
			return cli.UsageError{Text: fmt.Sprintf("%s: address %d: %v", what, i+1, err)}
		}
	}
	return nil
}

func setServers(ctx context.Context, st state, addresses []string) error {
	return st.replace(ctx, serversFile, []byte(strings.Join(addresses, "\n")+"\n"))
}

// servers returns none, and no error, where the server never advertised any.
func servers(ctx context.Context, st state) ([]string, error) {
	text, err := st.read(ctx, serversFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// ticketKeySize is that of each key in ticketKeyFile: the first one signs, the
// others did so before a -revoke-all.
const ticketKeySize = 32

// tickets are those that the key of the state has signed.
type tickets struct {
	gateway.Tickets
	revoked gateway.Tickets // of former keys
}

// setTickets gives the keys of the state to tickets; one is made if there is none.
func setTickets(ctx context.Context, st state, t *tickets) error {
	keys, err := st.read(ctx, ticketKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err := st.create(ctx, ticketKeyFile, newTicketKey()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		keys, err = st.read(ctx, ticketKeyFile)
	}
	if err != nil {
		return err
	}
	if len(keys) > ticketKeySize {
		former := slices.Collect(slices.Chunk(keys[ticketKeySize:], ticketKeySize))
		if err := t.revoked.SetKeys(former...); err != nil {
			return err
		}
		keys = keys[:ticketKeySize]
	}
	return t.SetKeys(keys)
}

// revokeTickets replaces the key of the state. Former ones are kept, to tell those
// who show their tickets what happened.
func revokeTickets(ctx context.Context, st state) error {
	const former = 4
	keys, err := st.read(ctx, ticketKeyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	keys = append(newTicketKey(), keys...)
	return st.replace(ctx, ticketKeyFile, keys[:min(len(keys), (1+former)*ticketKeySize)])
}

func newTicketKey() []byte {
	key := make([]byte, ticketKeySize)
	rand.Read(key)
	return key
}

// setGateway notes where clients with a ticket come in, if the address of the
// door says so.
func setGateway(ctx context.Context, st state, f *doorFlags) error {
	scheme, address := "http://", f.connect
	if f.connect == "" {
		scheme, address = "https://", f.connectTLS
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "0" {
		return nil // nobody can dial it
	}
	return st.replace(ctx, gatewayFile, []byte(scheme+address))
}
