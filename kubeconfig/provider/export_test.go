package provider

import "github.com/causewayproject/causeway/internal/controller"

// For the tests of what a cache keeps.
var (
	TrimCluster        = trimCluster
	TrimSecret         = trimSecret
	TrimRouteSecret    = trimRouteSecret
	TrimNamespace      = trimNamespace
	TrimInfrastructure = trimInfrastructure
	Spread             = controller.Spread
)
