// Package provider keeps the kubeconfig Secrets of Cluster API's Clusters
// such that they work from where the controllers are: through a proxy, a tunnel's
// gateway, or by another address.
//
// [Plan] is the centre: a pure function from what the API server holds of one
// Cluster (the [Cluster], its [Secrets], the [Config]) to what is to be done next,
// an [Action]. A program that has a controller already calls Plan from there.
//
// Module controllers has the reconciler around it, for a manager of
// controller-runtime: it watches, probes beside its workers, writes by
// resourceVersion, and plans again if a write found a newer version. It sees the
// Secrets that are labelled with cluster.x-k8s.io/cluster-name, as Cluster API's own
// controllers do, and [LabelRoute].
//
// # Configuration
//
// Annotations of the Cluster, of its Namespace, and Config.Defaults: the
// nearest one wins, one by one. An annotation holds no credentials: those are in the
// Secret that [AnnotationRouteSecret] names. Somebody with the right to annotate a Cluster
// can't send them to a proxy of their own: a route-secret is not used for a proxy that a
// nearer annotation names, and one that a Cluster names says itself what proxy, and which
// Cluster, it is for ([KeyProxyURL]). Otherwise the reason is [ReasonSecretRefused].
//
// # How a route is switched
//
// A new route is probed first, and written when the probe passed: until then the
// present route stays. Those that worked before are remembered. Within
// the grace period the new route is probed more often. If it fails twice in a row
// while a previous one works, that one is written again. The new one is
// tried again after a hold-off that doubles each time, up to a day, or when the
// configuration changes. [AnnotationRollback] asks for the previous route.
//
// A route by a proxy, a gateway or another server turns into a direct one only if the
// configuration says [Direct], if a no-proxy list has the API server, or if the mode is off
// or names another Secret. It stays if nothing names it any more, such as after a restart
// without a flag, or after clusterctl move, which leaves a Namespace's annotations behind:
// the reason is then [ReasonKept]. No fall-back and no rollback goes from it to a direct route.
//
// If another program drops an accepted route, as Cluster API does with each
// rotation, it is written again at once. One that does so again soon after is answered less and
// less often, with the reason [ReasonRivalWriter]. Changed credentials of the
// same proxy are probed, and have no grace period.
//
// What the provider remembers is in a Secret of its own beside each one that it manages, with the
// [RecordsName]. The Cluster owns it. It is written before the kubeconfig.
//
// # Whose verdict
//
// A kubeconfig is probed as a plain client-go goes, since its readers are Cluster API, Flux
// and kubectl. What only package connect's Clients can take, by the kubeconfig's extension, is
// told with the reason [ReasonCausewayOnly], status False: an https proxy with a CA or a client
// certificate of its own, and endpoints beside a server that is down. Such a route never
// replaces one that works for a plain client-go.
//
// # Security
//
// The Secrets hold the routes, the proxy's password included. Annotations, Events,
// conditions and errors hold none of that. A configuration that can't be used
// never becomes a direct connection: the route that was accepted last stays.
package provider
