// Package egress makes a kube-apiserver reach the nodes, Services and Pods of its cluster
// through a gateway of ours, and so through a tunnel. A [Sidecar] runs beside kube-apiserver:
// an HTTP proxy on a unix socket, which kube-apiserver's own EgressSelectorConfiguration
// names (see [Configuration]).
//
// A cluster comes to use it in phases that can be taken back. [Sidecar.SetPhase] changes the
// manifest of a static pod or of a Deployment, and [Sidecar.KubeadmConfig] renders the same
// for kubeadm. "causeway egress set" makes a report before and a check after each switch.
//
// kube-apiserver uses the selection "cluster", which is the one that goes through the
// Sidecar, for kubelets, for the Services of webhooks and of aggregated APIs, and for the
// targets of its proxy subresources.
//
// # Security
//
// kube-apiserver sends no credentials on the socket: the mode of the socket and of its
// directory decides which users may connect. What kube-apiserver sends is TLS.
package egress
