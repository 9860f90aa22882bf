package provider

import "github.com/causewayproject/causeway/kubeconfig/internal/field"

// Prefix of the annotations and labels.
const Prefix = "causewayproject.github.io/"

// Annotations of a Cluster, of a Namespace for all its Clusters, and fields of
// Config.Defaults for the installation. The nearest one wins, one by one; an empty
// one says nothing.
const (
	AnnotationMode          = Prefix + "mode"            // a [Mode], or "auto"
	AnnotationProxyURL      = Prefix + "proxy-url"       // without user info: that is in the Secret; "direct" for none
	AnnotationGateway       = Prefix + "gateway"         // a tunnel's gateway: Route.Tunnel.Gateway
	AnnotationTunnelCluster = Prefix + "tunnel-cluster"  // Route.Tunnel.Cluster; namespace/name if empty
	AnnotationRouteSecret   = Prefix + "route-secret"    // name of a Secret in the annotated Cluster's or Namespace's namespace
	AnnotationNoProxy       = Prefix + "no-proxy"        // a no_proxy list: a Cluster whose API server is on it is reached directly
	AnnotationTLSServerName = Prefix + "tls-server-name" // Spec.TLSServerName
	AnnotationServer        = Prefix + "server"          // Rewrite: host:port
	AnnotationSecondary     = Prefix + "secondary-name"  // Secondary: the Secret's name; <cluster>-proxied if empty; a new one must not have the name of another program's, such as -ca
	AnnotationGrace         = Prefix + "grace-period"    // a Go duration
	AnnotationProbe         = Prefix + "probe"           // "off": switch without asking; "on"
	// AnnotationRollback, only on a Cluster, with any value: the previous route is used for as long as the annotation exists.
	AnnotationRollback = Prefix + "rollback"
)

// LabelRoute marks the Secrets that route-secret may name: the provider
// watches these, and Cluster API's own labelled ones.
const LabelRoute = Prefix + "route" // any value

// Keys of a Secret that route-secret names. An https proxy may
// need more: ca.crt, its CA, is copied into the kubeconfig's extension; tls.crt and
// tls.key, a client certificate for the proxy, are named there by reference.
//
// A Secret that a Cluster's annotation names says itself where its credentials may go:
// KeyProxyURL or KeyGateway names the proxy, and an annotation beside route-secret must
// name the same scheme, host and port, or nothing. With the label
// cluster.x-k8s.io/cluster-name it is for the Cluster of that name, otherwise for those of
// its namespace. Without one of the keys it is for proxies that the Namespace or
// Config.Defaults names if it has that label; see also Secrets.SoleUser. A Secret that the
// Namespace or Config.Defaults names is for the proxy that is named there.
const (
	KeyUsername = "username"
	KeyPassword = "password"
	KeyProxyURL = field.KeyProxyURL // "proxy-url": the proxy, with user info or without
	KeyGateway  = field.KeyGateway  // "gateway": a tunnel's gateway, without user info
)

// Annotations of the Secrets that the provider writes, and data keys of those with a
// [RecordsName]. The data keys hold routes, and thus passwords. Earlier versions had them in the
// kubeconfig Secret, where other programs took them away. There is only DataState now, in a Secret
// that the provider has made.
const (
	AnnotationManager    = Prefix + "manager"        // Config.Name: others with another name keep their hands off
	AnnotationPhase      = Prefix + "phase"          // a [RouteState]
	AnnotationConditions = Prefix + "conditions"     // JSON, []metav1.Condition
	AnnotationRecords    = Prefix + "records"        // the RecordsName, a slash, and the number of the accepted route
	DataState            = "causeway-state"          // JSON: the provider's memory
	DataApplied          = "causeway-applied-route"  // JSON: the route that was accepted last
	DataOriginal         = "causeway-original-route" // JSON: the route before the first decoration
	DataPrevious         = "causeway-previous-route" // JSON: the routes that worked before it, the newest first, for falling and rolling back
)
