package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/restconfig"
	"github.com/causewayproject/causeway/tunnel"
)

// state is what servers and commands share.
type state interface {
	// check returns fs.ErrNotExist if no server has created the state yet.
	check(ctx context.Context) error
	// server returns a Server with the authority, which it creates if necessary, and
	// the store.
	server(ctx context.Context) (*tunnel.Server, error)
	// read returns the value of a name; fs.ErrNotExist without one.
	read(ctx context.Context, name string) ([]byte, error)
	// replace sets the value of a name.
	replace(ctx context.Context, name string, data []byte) error
	// create sets the value of a name without one; fs.ErrExist if it has one.
	create(ctx context.Context, name string, data []byte) error
	// list returns the values of the names that begin with prefix, in the order of the
	// names.
	list(ctx context.Context, prefix string) (map[string][]byte, error)
	// remove removes a name; fs.ErrNotExist if it has no value.
	remove(ctx context.Context, name string) error

	setPayload(ctx context.Context, cluster string, p tunnel.Payload) error
	payloads(ctx context.Context, cluster string) ([]tunnel.Payload, error)
}

// The names that have values.
const (
	serversFile   = "servers"     // the addresses that agents are given, a line each
	ticketKeyFile = "tickets.key" // what signs tickets
	gatewayFile   = "gateway"     // the URL of the first door for tickets
	audienceFile  = "audience"    // of the tokens that agents join with
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

// String names the flag that says where the state is.
func (f *stateFlags) String() string {
	if f.secrets != "" {
		return "--secrets " + f.secrets
	}
	return "--state " + f.dir
}

// open opens the state for a command. Only a server creates one: a name that was
// mistyped must not become another authority.
func (f *stateFlags) open(ctx context.Context) (state, error) {
	st, err := f.newState(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err = st.check(ctx); err == nil {
		return st, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no server has its state there: %w. Name the server's own --state or --secrets: only the server creates them", err)
	}
	return nil, fmt.Errorf("%s: %w", f, err)
}

// create opens the state for the server, which may be the first one.
func (f *stateFlags) create(log *slog.Logger) (state, error) {
	st, err := f.newState(log)
	if f.secrets == "" {
		if st, err = openDir(f.dir); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	return st, err
}

// newState does not look whether the state exists.
func (f *stateFlags) newState(log *slog.Logger) (state, error) {
	if f.secrets == "" {
		return dirState{f.dir}, nil
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
	config, err := restconfig.Load(f.kubeconfig)
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
	st, err := f.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	server, err := st.server(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f, err)
	}
	return st, server, nil
}

// checkServers returns an error if agents or replicas could not dial an address. It
// does not show the address: a URL may hold a secret.
func checkServers(what string, addresses []string) error {
	for i, address := range addresses {
		err := checkDialable(address)
		if err == nil {
			_, err = tunnel.TransportFor(address)
		}
		if err != nil {
			return cli.Mistake("%s: address %d: %v", what, i+1, err)
		}
	}
	return nil
}

// checkDialable returns an error if nobody can dial host:port, or the URL.
func checkDialable(address string) error {
	host, port, err := splitAddress(address)
	switch {
	case err != nil:
		return errors.New("it has no port, or is not HOST:PORT, with brackets around an IPv6 host")
	case host == "":
		return errors.New("it has no host")
	}
	if strings.ContainsFunc(host, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._:%", r)
	}) {
		return errors.New("its host is not a name or an IP address")
	}
	return checkPort(port)
}

// splitAddress splits host:port, or the URL of a WebSocket.
func splitAddress(address string) (host, port string, err error) {
	u, err := url.Parse(address)
	if !strings.Contains(address, "://") || err != nil {
		return net.SplitHostPort(address)
	}
	port = "443"
	if u.Scheme == "ws" {
		port = "80"
	}
	return u.Hostname(), cmp.Or(u.Port(), port), nil
}

func checkPort(port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("its port is not a number from 1 to 65535")
	}
	return nil
}

// replaceChanged does not write what is there already: a full disk is no reason not to
// start.
func replaceChanged(ctx context.Context, st state, name string, data []byte) error {
	if old, err := st.read(ctx, name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return st.replace(ctx, name, data)
}

// noteCluster records that an agent of the cluster was invited.
func noteCluster(ctx context.Context, st state, cluster string) error {
	if _, err := st.read(ctx, clusterFile(cluster)); err == nil {
		return nil // on a full disk, too
	}
	if err := st.create(ctx, clusterFile(cluster), []byte(cluster+"\n")); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// warnUnknown writes a warning if there is no record that an agent of the cluster was
// invited. It is no error: a state of an earlier version, or a partial copy of one, has
// no such record of a cluster whose agents are connected.
func warnUnknown(ctx context.Context, st state, cluster string, stderr io.Writer) {
	if _, err := readJoin(ctx, st, cluster); err == nil {
		return // its agents need no invitation
	}
	switch _, err := st.read(ctx, clusterFile(cluster)); {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(stderr, "warning: this state has no record of an invitation of cluster %q: check the name; the server's page and log have the names\n", cluster)
	case err != nil:
		fmt.Fprintf(stderr, "warning: it can't be checked that an agent of cluster %q was invited: %v\n", cluster, err)
	}
}

const clusterPrefix = "cluster-"

func clusterFile(cluster string) string { return clusterPrefix + hashName(cluster) }

func saveServers(ctx context.Context, st state, addresses []string) error {
	return replaceChanged(ctx, st, serversFile, []byte(strings.Join(addresses, "\n")+"\n"))
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
	return replaceChanged(ctx, st, gatewayFile, []byte(scheme+address))
}
