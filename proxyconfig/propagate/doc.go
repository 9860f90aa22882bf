// Package propagate keeps the objects from which Giant Swarm's cluster apps and
// machines take their proxies ([proxyconfig.ClusterValues]) current for every
// Cluster of Cluster API.
//
// [Plan] is the centre: a pure function from a [Cluster], what the API server
// holds of it ([Held]) and the [Config] to what is to be written, an [Action].
// Package controllers has a ProxyReconciler that runs it in a manager of
// controller-runtime, and "causeway propagator" is a program with that manager.
//
// # Configuration
//
// The installation's proxies are in one Secret, Config.Installation. While that is
// missing or can't be used, nothing is written anywhere and existing objects stay:
// a Secret that is gone never means "no proxy".
//
// One place holds a Cluster's own settings: the Secret
// <cluster>-proxy-override of its namespace with the label [LabelOverride]; the
// Key constants say what both Secrets hold. Without the label it is not read, and an
// Event says so. An override that can't be used stops only its Cluster's writes. So does one
// that changed something and is gone, or says nothing any more: it was not moved, restored or
// spelt right, and no proxy becomes another by that. To end its settings, set [KeyDirect]
// to "false" and nothing else; it may be deleted then. An override becomes the Cluster's, by the
// label cluster.x-k8s.io/cluster-name and an owner, unless it is another's: clusterctl move
// takes it along, and it goes with the Cluster. Authors
// of overrides can't let the installation's credentials go further than
// Config.Credentials does, but may send all else where they like: the right to write
// Secrets beside a Cluster is the right to choose its proxies.
//
// # What is written
//
// In this order, each with the Cluster as an owner:
//
//   - Secret <cluster>-systemd-proxy, the drop-in and what kubeadm reads (see
//     [proxyconfig.StaticPods]): what a machine reads once, when it is made, comes
//     first. Static pods need the nodes' networks in Cluster.Facts.
//   - Secret <cluster>-cluster-values.
//   - ConfigMap <cluster>-cluster-values.
//
// A Cluster without spec.clusterNetwork.services has kubeadm's default, 10.96.0.0/12, unless
// Cluster.Facts says otherwise; an Event tells of it, and of one without pods.
//
// cluster-apps-operator writes objects with these names as well: the last two with
// values besides the proxies that charts need (baseDomain, clusterCA, clusterDNSIP,
// clusterID, provider and others), the first where it has a proxy. Beside it, set
// Config.ValuesName and SystemdName, and name the objects in the spec.extraConfigs of Apps
// and in KubeadmConfigs; chart-operator's App stays with cluster-apps-operator's.
// Objects in the shape that this package wrote before it had Config.Layout are written
// again.
//
// A machine that is made before spec.controlPlaneEndpoint is known would always send
// requests for its API server to the proxy. The drop-in is therefore not made, and
// not changed, without an endpoint (or another of Cluster.Facts.ControlPlaneHosts):
// Cluster API waits for a Secret that a KubeadmConfig's files refer to. The values
// are written at once, and again with the endpoint, as charts read them again.
//
// Keys, labels and owners of others stay; an edit of ours is put back. An object
// without the label giantswarm.io/managed-by, or with another's value, is never
// written, and an Event says what to do about it. Nor is one with our label that is of
// another type, or that has owners of which none is a Cluster of this name. One of an
// earlier Cluster of this name, or without an owner, as a restore leaves it, is taken over,
// and an Event says so. With KeyDirect, or credentials
// that go nowhere, the objects hold less, and are not deleted, since machines
// refer to them; they go with the Cluster. Nothing is written for a paused Cluster, or
// one that is being deleted.
//
// # Rolling a password
//
//  1. Have the proxy accept both passwords.
//  2. Change the installation's Secret, or the override. All objects of all
//     Clusters are rendered again, within 10 seconds for 500 of them; the log
//     tells of each, in the order above, Clusters in none.
//  3. Charts are rendered again by whatever deploys them, and pods whose manifests hold
//     the values, such as chart-operator's, restart with that. Those that refer to an
//     object keep the old password until someone restarts them: to a Secret of
//     [PlanEnv], or, as cert-manager-app's from 4.0.1, to a ConfigMap of their chart.
//  4. Machines keep the drop-in that they were made with. Have new ones made
//     (clusterctl alpha rollout restart), or write the file to them by other means.
//  5. Once no connection uses the old password, as the proxy's log has it, drop it
//     there.
//
// Step 2 follows by itself, and so does the part of step 3 that the charts' operators
// do.
//
// # Security
//
// The Secrets hold the proxies' passwords; package proxyconfig lists their
// readers. Errors, Events, and what is logged hold none.
package propagate
