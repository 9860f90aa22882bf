// Package bed is the test bed of the end-to-end tests: a kube-apiserver with
// its etcd, an sshd, and the proxies in front of both, all of them the real
// programs, in network namespaces of their own; and a [Kubelet] that serves
// pods which run nowhere.
//
//	client namespace          proxy namespace              api namespace
//	198.51.100.2  ---veth---  198.51.100.1
//	                          192.0.2.1     ---veth---     192.0.2.10
//	kubectl, test roles       squid, haproxy, tinyproxy    kube-apiserver, etcd
//	ssh -D                    danted, microsocks, sshd     sshd, the Kubelet
//
//	hub namespace
//	203.0.113.2   ---veth---  203.0.113.1
//	203.0.113.3               192.0.2.1
//	the tunnel's server,      another squid, the office    the tunnel's agent
//	kubectl, ssh              proxy of the api namespace
//
// A [ClusterAPI], a management cluster, is in the client namespace too, and may
// have workload clusters beside the first kube-apiserver.
//
// No namespace has a default route and none forwards, so a connection from the
// client reaches the API server through one of the proxies or not at all. One
// from the hub does not reach it at all, but through a tunnel, whose agent
// reaches the hub through the office proxy or not at all.
//
// A [Path] is two more hosts, apart from all that, with a router between them where
// packets can be lost. An [IPv6Only] is three hosts without IPv4, with proxies and a
// kube-apiserver of their own.
//
// The bed needs root. It changes nothing that outlives it: namespaces have
// names of this run, and the servers' user exists in a private mount only. If the
// test process crashes, its servers end with it, and the next run removes the rest.
package bed
