package controllers

import "github.com/causewayproject/causeway/kubeconfig/provider"

// For the tests of what a cache keeps.
var (
	TrimClusters       = trimClusters
	TrimInfrastructure = trimInfrastructure
	TrimNamespace      = trimNamespace
	SpreadTime         = spreadTime
)

// SetPlan replaces [provider.Plan].
func (r *KubeconfigReconciler) SetPlan(plan func(provider.Cluster, provider.Secrets, provider.Config) (provider.Action, error)) {
	r.plan = plan
}
