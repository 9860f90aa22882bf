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
//     and their Secrets as Cluster API expects them; its packages connect,
//     probe and provider make clients of them, say what stops a connection,
//     and keep the kubeconfigs of all Clusters on their routes;
//   - [github.com/causewayproject/causeway/proxyconfig] renders one proxy
//     configuration for machines, charts, pods and tools;
//   - [github.com/causewayproject/causeway/tunnel] dials through an agent
//     beside the cluster that has dialed out, and
//     [github.com/causewayproject/causeway/tunnel/gateway] gives that, or any
//     dial function, the form of a proxy;
//   - [github.com/causewayproject/causeway/tunnel/kubernetes] lets several
//     tunnel servers and gateways share what they know through the cluster that
//     they run in;
//   - [github.com/causewayproject/causeway/tunnel/egress] brings a
//     kube-apiserver to its nodes through the tunnel, in phases;
//   - tunnel/oidc, a module of its own, lets agents join by a token of their
//     ServiceAccount;
//   - tunnel/prometheus, a module of its own, lets a Prometheus watch all of it.
//
// The parts fit together by the type of [net.Dialer.DialContext]. The packages
// dialer, noproxy and tunnel import no Kubernetes package. The README says which
// package is for what, and the folder docs has a page for each kind of reader.
package causeway
