package provider

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
	AnnotationTunnelZone    = Prefix + "tunnel-zone"     // Route.Tunnel.Zone
	AnnotationRouteSecret   = Prefix + "route-secret"    // name of a Secret in the annotated Cluster's or Namespace's namespace
	AnnotationNoProxy       = Prefix + "no-proxy"        // a no_proxy list: a Cluster whose API server is on it is reached directly
	AnnotationTLSServerName = Prefix + "tls-server-name" // Spec.TLSServerName
	AnnotationServer        = Prefix + "server"          // Rewrite: host:port
	AnnotationSecondary     = Prefix + "secondary-name"  // Secondary: the Secret's name; <cluster>-proxied if empty; must not end in -kubeconfig
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
const (
	KeyUsername = "username"
	KeyPassword = "password"
	KeyProxyURL = "proxy-url" // whole, user info included; instead of the annotation
	KeyGateway  = "gateway"   // a tunnel's gateway, without user info, unless an annotation beside route-secret names one
)

// Annotations and data keys of the Secrets that the provider writes. The data
// keys hold routes, and thus passwords.
const (
	AnnotationManager    = Prefix + "manager"        // Config.Name: others with another name keep their hands off
	AnnotationPhase      = Prefix + "phase"          // a [RouteState]
	AnnotationConditions = Prefix + "conditions"     // JSON, []metav1.Condition
	DataState            = "causeway-state"          // JSON: the provider's memory
	DataApplied          = "causeway-applied-route"  // JSON: the route that was accepted last
	DataOriginal         = "causeway-original-route" // JSON: the route before the first decoration
	DataPrevious         = "causeway-previous-route" // JSON: the routes that worked before it, the newest first, for falling and rolling back
)
