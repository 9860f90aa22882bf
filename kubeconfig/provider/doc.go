// Package provider keeps the kubeconfig Secrets of Cluster API's Clusters
// such that they work from where the controllers are: through a proxy, a tunnel's
// gateway, or by another address.
//
// [Plan] is the centre: a pure function from what the API server holds of one
// Cluster (the [Cluster], its [Secrets], the [Config]) to what is to be done next,
// an [Action]. Whoever has a controller already calls it from there.
//
// [Provider] is a controller around it, on client-go alone: it watches, probes
// beside its workers, writes by resourceVersion, and plans anew where a write
// found something newer. It sees the Secrets that are labelled with
// cluster.x-k8s.io/cluster-name, as Cluster API's own controllers do, and
// [LabelRoute]. examples/kubeconfig-provider runs it; in a controller-runtime
// manager it is a Runnable: manager.RunnableFunc(p.Run).
//
// # Configuration
//
// Annotations of the Cluster, of its Namespace, and Config.Defaults: the
// nearest one wins, one by one. An annotation holds no credentials: those are in the
// Secret that [AnnotationRouteSecret] names, and a route-secret is not used for
// a proxy that a nearer annotation names, so that whoever annotates a Cluster can't
// send the installation's password to a proxy of their own.
//
// # How a route is switched
//
// A new route is probed first, and written when the probe passed: until then
// what is there stays. The one before is kept in the Secret ([DataPrevious]). Within
// the grace period the new route is probed more often; if it fails twice in a row
// while the one before works, that one is written again, and the new one is not
// tried before a hold-off that doubles each time, up to a day, or a change of the
// configuration. With [AnnotationRollback] a person asks for the one before.
//
// A route that was accepted once is written again at once when another program
// lost it, as Cluster API does with each rotation. Changed credentials of the
// same proxy are probed, and have no grace period.
//
// # Security
//
// The Secrets hold the routes, the proxy's password included. Annotations, Events,
// conditions and errors hold none of that. A configuration that can't be used
// never becomes a direct connection: the route that was accepted last stays.
package provider
