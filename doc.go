// Package causeway is about reaching Kubernetes API servers that have no
// direct way in: behind a corporate proxy, a SOCKS jump host, a chain of
// them, or a NAT that nothing leads into. It holds no code; its packages do:
//
//   - [github.com/causewayproject/causeway/dialer] makes connections through
//     HTTP CONNECT and SOCKS5 proxies, chains of them, and whichever of
//     several works;
//   - [github.com/causewayproject/causeway/noproxy] decides what goes around
//     a proxy, as Go reads no_proxy, and knows how others read it;
//   - [github.com/causewayproject/causeway/kubeconfig] builds kubeconfigs
//     and their Secrets as Cluster API expects them,
//     [github.com/causewayproject/causeway/kubeconfig/connect] makes clients of
//     them, and [github.com/causewayproject/causeway/kubeconfig/probe] says why
//     a cluster can't be reached;
//   - [github.com/causewayproject/causeway/tunnel] dials through an agent
//     beside the cluster that has dialed out, and
//     [github.com/causewayproject/causeway/tunnel/gateway] gives that, or any
//     dial function, the form of a proxy;
//   - [github.com/causewayproject/causeway/tunnel/kubernetes] lets several
//     tunnel servers and gateways share what they know through the cluster that
//     they run in;
//   - [github.com/causewayproject/causeway/tunnel/egress] reads and writes
//     kube-apiserver's EgressSelectorConfiguration;
//   - tunnel/prometheus, a module of its own, lets a Prometheus watch all of it.
//
// The glue between them is the type of [net.Dialer.DialContext]. Whoever wants
// a dialer alone pulls no Kubernetes library into the build.
package causeway
