package provider

import "github.com/causewayproject/causeway/internal/controller"

// For the tests of what a cache keeps.
var (
	TransformCluster        = transformCluster
	TransformSecret         = transformSecret
	TransformRouteSecret    = transformRouteSecret
	TransformNamespace      = transformNamespace
	TransformInfrastructure = transformInfrastructure
	Spread                  = controller.Spread
)
