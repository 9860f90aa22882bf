// Package controllers runs what packages kubeconfig/provider and
// proxyconfig/propagate decide, in a manager of controller-runtime: on its
// clients and caches, with its leader election, health, metrics, logs and Events.
//
// Clusters are read as unstructured objects, in the version that the API server
// serves (v1beta2 or v1beta1): an importer may have any version of Cluster API's own
// types, or none. With [CacheOptions] the manager's cache keeps only what is read.
//
// [PodSecretReconciler] and [ClusterFacts] need no Clusters: they run in any cluster whose
// pods get a proxy.
package controllers
