// Package egress reads, writes and uses the EgressSelectorConfiguration of
// kube-apiserver (apiserver.k8s.io/v1beta1): the file that says by which proxy
// it reaches the nodes, Services and Pods of its cluster.
//
// One way, it writes the file that sends a kube-apiserver through a gateway of
// ours, and with it through a tunnel:
//
//	c := egress.Configuration{Selections: []egress.Selection{
//		{Name: egress.Cluster, Connection: egress.ThroughSocket("/run/causeway/tunnel/egress.sock")},
//	}}
//	text, err := c.Marshal() // for --egress-selector-config-file
//
// The gateway is tunnel/gateway's ServeConnect on that socket; for TCP, see
// [ThroughTLS].
//
// The other way, it makes a Dialer of such a file, so that an aggregated API
// server or a controller goes where the kube-apiserver beside it goes, through
// a Konnectivity server for example:
//
//	c, err := egress.Parse(text)
//	d, err := c.Dialer(egress.Cluster)
//
// Konnectivity's other protocol, GRPC, is read and written, and not spoken: its
// server has to run with --mode=http-connect.
//
// # What goes which way
//
// kube-apiserver dials kubelets, the Services of webhooks and of aggregated
// APIs, and what its proxy subresources name by the selection "cluster";
// webhooks that are named by a URL by "controlplane"; etcd by "etcd". Without
// a selection it dials directly, and so does a Dialer of this package.
//
// # Security
//
// HTTPConnect carries no credentials. On a unix socket, the mode of its
// directory decides who may connect; over TCP, the client certificate does. A
// proxy sees where kube-apiserver connects to; what it sends is TLS.
package egress
