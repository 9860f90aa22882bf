// Package egress reads, writes and uses the EgressSelectorConfiguration of
// kube-apiserver (apiserver.k8s.io/v1beta1): the file with the proxies by which it
// reaches the nodes, Services and Pods of its cluster.
//
// It writes a file by which kube-apiserver uses a gateway of ours, and so a tunnel:
//
//	c := egress.Configuration{Selections: []egress.Selection{
//		{Name: egress.Cluster, Connection: egress.ThroughSocket("/run/causeway/tunnel/egress.sock")},
//	}}
//	text, err := c.Marshal() // for --egress-selector-config-file
//
// The gateway is tunnel/gateway's ServeConnect on that socket; for TCP, see
// [ThroughTLS].
//
// It also makes a Dialer of such a file, so that an aggregated API server or a
// controller uses the same proxies as its kube-apiserver, for example a Konnectivity
// server:
//
//	c, err := egress.Parse(text)
//	d, err := c.Dialer(egress.Cluster)
//
// [Sidecar] is such a gateway's end beside a kube-apiserver. SetPhase adds it to the manifest
// of a static pod or of a Deployment, in phases that can be taken back; "causeway egress set"
// does so, with a report before and a check after each switch.
//
// A selection with Konnectivity's other protocol, GRPC, can be read and written but
// not dialed: run Konnectivity's server with --mode=http-connect.
//
// # Selections
//
// kube-apiserver uses the selection "cluster" for kubelets, for the Services of
// webhooks and of aggregated APIs, and for the targets of its proxy subresources. It
// uses "controlplane" for webhooks with a URL, and "etcd" for etcd. Without a selection
// it dials directly, and so does a Dialer of this package.
//
// # Security
//
// HTTPConnect sends no credentials. With a unix socket, the mode of its directory
// decides which users may connect; with TCP, the client certificate does. A proxy sees where
// kube-apiserver connects to. What kube-apiserver sends is TLS.
package egress
