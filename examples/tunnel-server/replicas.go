package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/causewayproject/causeway/examples/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

// replicaFlags say which other servers have agents of the same clusters.
type replicaFlags struct {
	name, service string
	addresses     cli.List
}

func (f *replicaFlags) add(set *flag.FlagSet) {
	set.StringVar(&f.name, "name", "", "`name` of this server among its replicas; default: the host's, and with -peers a random one")
	set.Var(&f.addresses, "peers", "`address` of the other replicas: host:port, whose name may stand for all of them, or a wss URL (a private authority of its certificate: in SSL_CERT_FILE); several are allowed")
	set.StringVar(&f.service, "peers-service", "", "`name` of a Service, in the namespace of the -secrets, whose endpoints are the replicas; instead of -peers")
}

func (f *replicaFlags) check(state *stateFlags) error {
	switch {
	case f.service != "" && state.secrets == "":
		return cli.UsageError{Text: "tunnel-server: -peers-service goes with -secrets"}
	case f.service != "" && len(f.addresses) > 0:
		return cli.UsageError{Text: "tunnel-server: -peers and -peers-service exclude each other"}
	case strings.ContainsFunc(f.name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == '|' }):
		return cli.UsageError{Text: fmt.Sprintf("tunnel-server: -name %q holds a space, a bar or a character that does not print", f.name)}
	}
	return checkServers("tunnel-server: -peers", f.addresses)
}

// join has the server find its replicas.
func (f *replicaFlags) join(server *tunnel.Server, st state) {
	server.Name = f.name
	if f.name == "" && len(f.addresses) == 0 { // several replicas may share a host
		server.Name, _ = os.Hostname()
	}
	switch st, _ := st.(*secretState); {
	case len(f.addresses) > 0:
		server.Peers = tunnel.StaticPeers(f.addresses)
	case f.service != "":
		server.Peers = tunnelkube.EndpointSlices{Client: st.client, Namespace: st.namespace, Service: f.service,
			Error: func(err error) { st.log.Warn("peers", "error", err) }}
	}
}
