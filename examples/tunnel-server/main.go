// Tunnel-server is the end of the tunnel beside the controllers: agents
// connect to it, and each of its listeners leads to a target that the agents
// of one cluster dial.
//
//	tunnel-server -state /var/lib/tunnel-server -listen :8443 -advertise tunnel.example.com:8443 \
//		-forward 127.0.0.1:6443=default/prod/kubernetes.default.svc:443 -connect 127.0.0.1:3128
//
// The state directory holds the authority that signs all certificates, made
// at the first start, and what was enrolled and revoked. The other commands
// work on it, whether or not the server runs:
//
//	tunnel-server enroll default/prod                  # the command line of an agent
//	tunnel-server enroll default/prod -format systemd  # or env, secret, manifest
//	tunnel-server revoke default/prod k3w7hq2nxy5zr4ta
//	tunnel-server payload default/prod authorized_keys <id_ed25519.pub
//
// Several servers with the same state are one: a client of any of them reaches
// the agents of all. In Kubernetes their state is in Secrets, and they find each
// other by a Service; examples/deploy has them deployed:
//
//	tunnel-server -secrets tunnel-server/tunnel -peers-service tunnel-server-peers
//	tunnel-server enroll default/prod -secrets tunnel-server/tunnel -kubeconfig admin.conf
//
// To replace their authority: rotate add, and when all agents have connected,
// rotate switch, and after the life of a certificate (7 days), rotate drop.
//
// Clients that can't be changed come in by the doors of package gateway: an HTTP
// proxy (-connect, -connect-tls, -connect-unix), SOCKS5 (-socks5), a server name
// (-sni). Whom the proxies lead to which cluster says a ticket:
//
//	tunnel-server kubeconfig default/prod <admin.conf >prod.conf  # for kubectl
//	tunnel-server ticket default/prod                             # an HTTPS_PROXY
//	tunnel-server ticket -revoke-all
//
// In Kubernetes it may be RBAC that says so: with -door-token-audience a client shows
// a token of its ServiceAccount, and needs the verb connect on clusters/tunnel in
// cluster.x-k8s.io:
//
//	tunnel-server -secrets tunnel-server/tunnel -connect :3128 -door-token-audience tunnel.example.com
//	token=$(kubectl create token annie --audience tunnel.example.com)
//	HTTPS_PROXY=http://default%2Fprod:$token@127.0.0.1:3128 kubectl --kubeconfig admin.conf --server https://kubernetes.default.svc get nodes
//
// What enroll prints holds a token: whoever has it first is the agent. A
// payload is handed to the cluster's agents that are connected, and to each
// that connects.
//
// Whoever can connect to a -forward listener reaches its target, as to an open
// port: keep it on loopback, in a pod of its own, or behind a firewall. The
// same goes for -status, which has a page for operators at /, and serves
// /healthz, /readyz and /status.
//
// Strangers can't fill the log: of what a source fails at there is a line a minute,
// and the next one says how many were left out. The listener for agents takes up
// to 5,000 file descriptors for those who have not proven who they are, and so do
// the doors.
//
// On SIGTERM the agents are told to connect elsewhere, and what is open lives
// on for -grace.
package main

import (
	"context"
	"io"

	"github.com/causewayproject/causeway/examples/internal/cli"
)

const usage = `usage:
  tunnel-server [serve]    [flags]
  tunnel-server enroll     [flags] CLUSTER
  tunnel-server revoke     [flags] CLUSTER AGENT
  tunnel-server payload    [flags] CLUSTER NAME <FILE
  tunnel-server kubeconfig [flags] CLUSTER <KUBECONFIG
  tunnel-server ticket     [flags] CLUSTER
  tunnel-server rotate     [flags] add | switch | drop

-h after a command lists its flags.
`

func main() { cli.Main(run) }

// run is main without the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	command := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	switch command {
	case "serve":
		return serve(ctx, args, stdout, stderr)
	case "enroll":
		return enroll(ctx, args, stdout)
	case "revoke":
		return revoke(ctx, args, stdout)
	case "payload":
		return payload(ctx, args, stdin, stdout)
	case "kubeconfig":
		return kubeconfigCommand(ctx, args, stdin, stdout)
	case "ticket":
		return ticket(ctx, args, stdout)
	case "rotate":
		return rotate(ctx, args, stdout)
	case "help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return cli.UsageError{Text: "tunnel-server: unknown command " + command}
}
