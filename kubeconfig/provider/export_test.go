package provider

// For the tests of what a cache keeps.
var (
	TrimCluster        = trimCluster
	TrimSecret         = trimSecret
	TrimRouteSecret    = trimRouteSecret
	TrimNamespace      = trimNamespace
	TrimInfrastructure = trimInfrastructure
	Spread             = spread
)
