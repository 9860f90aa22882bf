// Package controllers runs what packages kubeconfig/provider and
// proxyconfig/propagate decide, in a manager of controller-runtime: on its
// clients and caches, with its leader election, health, metrics, logs and Events.
//
// Clusters are read as unstructured objects, in the version that the API server
// serves (v1beta2 or v1beta1), so that no version of Cluster API is imposed on who
// imports this package. [CacheOptions] has the manager's cache keep what is read and
// no more.
package controllers
