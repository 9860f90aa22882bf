// Tunnel-server is the tunnel's end that runs next to the controllers. Agents connect
// to it, and each of its listeners forwards to a target that the agents of one
// cluster dial.
//
//	tunnel-server -state /var/lib/tunnel-server -listen :8443 -advertise tunnel.example.com:8443 \
//		-forward 127.0.0.1:6443=default/prod/kubernetes.default.svc:443 -connect 127.0.0.1:3128
//
// The state directory holds the authority that signs all certificates, which is
// created at the first start, and the tokens and revocations. The other commands work
// on it, whether or not the server runs:
//
//	tunnel-server enroll default/prod                  # the command line of an agent
//	tunnel-server enroll default/prod -format systemd  # or env, secret, manifest
//	tunnel-server revoke default/prod k3w7hq2nxy5zr4ta
//	tunnel-server payload default/prod authorized_keys <id_ed25519.pub
//
// Several servers with the same state act as one: a client of any of them reaches the
// agents of all. In Kubernetes their state is in Secrets, and they find each other by
// a Service; examples/deploy deploys them:
//
//	tunnel-server -secrets tunnel-server/tunnel -peers-service tunnel-server-peers
//	tunnel-server enroll default/prod -secrets tunnel-server/tunnel -kubeconfig admin.conf
//
// To replace their authority: rotate add, and when all agents have connected,
// rotate switch, and after the life of a certificate (7 days), rotate drop.
//
// Clients that can't be changed use the doors of package gateway: an HTTP proxy
// (-connect, -connect-tls, -connect-unix), SOCKS5 (-socks5), a server name (-sni). A
// ticket says which cluster a client of the proxies may reach:
//
//	tunnel-server kubeconfig default/prod <admin.conf >prod.conf  # for kubectl
//	tunnel-server ticket default/prod                             # an HTTPS_PROXY
//	tunnel-server ticket -revoke-all
//
// In Kubernetes, RBAC can say so instead: with -door-token-audience a client shows a
// token of its ServiceAccount, and needs the verb connect on clusters/tunnel in
// cluster.x-k8s.io:
//
//	tunnel-server -secrets tunnel-server/tunnel -connect :3128 -door-token-audience tunnel.example.com
//	token=$(kubectl create token annie --audience tunnel.example.com)
//	HTTPS_PROXY=http://default%2Fprod:$token@127.0.0.1:3128 kubectl --kubeconfig admin.conf --server https://kubernetes.default.svc get nodes
//
// The output of enroll holds a token: the first program that uses it becomes the
// agent. A payload is sent to the connected agents of the cluster, and to each agent
// that connects later.
//
// Every client that can connect to a -forward listener reaches its target: keep it on
// loopback, in a pod of its own, or behind a firewall. The same goes for -status, which has a
// page for operators at /, and serves /healthz, /readyz and /status.
//
// Strangers can't fill the log: for the failures of one source there is one line a
// minute, and the next one says how many were left out. The listener for agents uses
// up to 5,000 file descriptors for connections that are not authenticated yet, and so
// do the doors.
//
// On SIGTERM the agents are told to connect to another server, and open connections
// live on for -grace.
package server

import (
	"context"
	"io"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
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

// run is main with arguments and streams that tests can set.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	command := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	switch command {
	case "serve":
		return serveCommand(ctx, args, stdout, stderr)
	case "enroll":
		return enrollCommand(ctx, args, stdout)
	case "revoke":
		return revokeCommand(ctx, args, stdout)
	case "payload":
		return payloadCommand(ctx, args, stdin, stdout)
	case "kubeconfig":
		return kubeconfigCommand(ctx, args, stdin, stdout)
	case "ticket":
		return ticketCommand(ctx, args, stdout)
	case "rotate":
		return rotateCommand(ctx, args, stdout)
	case "help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return cli.UsageError{Text: "tunnel-server: unknown command " + command}
}
