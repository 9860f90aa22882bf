package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
)

// state is what servers and commands share.
type state interface {
	// server returns a Server with the authority, which it creates if necessary, and
	// the store.
	server(ctx context.Context) (*tunnel.Server, error)
	// read returns the value of a name; fs.ErrNotExist without one.
	read(ctx context.Context, name string) ([]byte, error)
	// replace sets the value of a name.
	replace(ctx context.Context, name string, data []byte) error
	// create sets the value of a name without one; fs.ErrExist if it has one.
	create(ctx context.Context, name string, data []byte) error

	setPayload(ctx context.Context, cluster string, p tunnel.Payload) error
	payloads(ctx context.Context, cluster string) ([]tunnel.Payload, error)
}

// The names that have values.
const (
	serversFile   = "servers"     // the addresses that agents are given, a line each
	ticketKeyFile = "tickets.key" // what signs tickets
	gatewayFile   = "gateway"     // the URL of the first door for tickets
)

// follower is a state that tells the server when others write to it, revocations
// included.
type follower interface {
	// follow returns when ctx ends.
	follow(ctx context.Context, server *tunnel.Server)
}

type stateFlags struct{ dir, secrets, kubeconfig string }

func addStateFlags(set *pflag.FlagSet) *stateFlags {
	f := new(stateFlags)
	set.StringVar(&f.dir, "state", "/var/lib/tunnel-server", "`directory` of the authority's key, tokens and revocations")
	f.addSecrets(set)
	return f
}

// addSecrets adds the flags of a state in Secrets.
func (f *stateFlags) addSecrets(set *pflag.FlagSet) {
	set.StringVar(&f.secrets, "secrets", "", "`NAMESPACE/PREFIX` of Secrets that have it instead: what several servers share")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that leads to the cluster with the --secrets; default: the pod's own")
}

// open opens the state without creating an authority.
func (f *stateFlags) open(log *slog.Logger) (state, error) {
	if f.secrets == "" {
		st, err := openDir(f.dir)
		if err != nil {
			return nil, fmt.Errorf("--state: %w", err)
		}
		st.warnIfPublic(log)
		return st, nil
	}
	namespace, prefix, ok := strings.Cut(f.secrets, "/")
	if wrong := validation.IsDNS1123Label(prefix); !ok || namespace == "" || len(wrong) > 0 {
		return nil, cli.Mistake("--secrets %q is not NAMESPACE/PREFIX", f.secrets)
	}
	client, err := f.client()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
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

// openServer opens the state for a command. The Server serves nothing and need not be
// closed.
func (f *stateFlags) openServer(ctx context.Context) (state, *tunnel.Server, error) {
	st, err := f.open(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	server, err := st.server(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("state: %w", err)
	}
	return st, server, nil
}

// checkServers returns an error if agents or replicas could not dial an address. It
// does not show the address: a URL may hold a secret.
func checkServers(what string, addresses []string) error {
	for i, address := range addresses {
		if _, err := tunnel.TransportFor(address); err != nil {
			return cli.Mistake("%s: address %d: %v", what, i+1, err)
		}
	}
	return nil
}

func saveServers(ctx context.Context, st state, addresses []string) error {
	return st.replace(ctx, serversFile, []byte(strings.Join(addresses, "\n")+"\n"))
}

// advertisedServers returns the addresses of --advertise, or nil.
func advertisedServers(ctx context.Context, st state) ([]string, error) {
	text, err := st.read(ctx, serversFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// saveGateway saves the URL of the door for tickets, if its address has a host and a
// port.
func saveGateway(ctx context.Context, st state, f *doorFlags) error {
	scheme, address := "http://", f.connect
	if f.connect == "" {
		scheme, address = "https://", f.connectTLS
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "0" {
		return nil // nobody can dial it
	}
	return st.replace(ctx, gatewayFile, []byte(scheme+address))
}
