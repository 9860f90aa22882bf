// Package kubernetes keeps the state that replicas of a tunnel server or gateway
// share on the Kubernetes API: any number of replicas behind one Service, without a
// database and without a list of each other.
//
//   - [EndpointSlices]: the addresses of the replicas, from the Service.
//   - [SecretStore]: a [tunnel.Store] in Secrets.
//   - [AuthoritySecret]: the one [tunnel.Authority] of all replicas.
//   - [TokenReview]: authentication of a gateway's clients by ServiceAccount tokens.
//
// Nothing is written for each connection or each cluster. While the API server is
// down, the last known state counts: sessions live on, the replicas stay, and agents
// may reconnect, for [SecretStore.MaxStale]. New decisions fail: an enrolment, a
// client that is not remembered. examples/deploy/FAULTS.md lists what else can be
// cut off, and what happens then.
//
//	authority, err := kubernetes.AuthoritySecret{Client: client, Namespace: ns, Name: "tunnel-authority"}.LoadOrCreate(ctx)
//	store := &kubernetes.SecretStore{Client: client, Namespace: ns}
//	server := &tunnel.Server{Authority: authority, Store: store}
//	go server.FollowStore(ctx)
//
// docs/tunnel.md has the whole program, with a gateway.
//
// # Rights
//
// Each type says which rights it needs. Together, in the namespace of the servers:
//
//	endpointslices (discovery.k8s.io)                list, watch
//	secrets                                          get, list, watch, create, update, delete
//
// and in the whole cluster, for TokenReview:
//
//	tokenreviews (authentication.k8s.io)             create
//	subjectaccessreviews (authorization.k8s.io)      create
//
// A user that can write those Secrets can let revoked agents in. A user that can read
// the authority's Secret can act as any agent and any server. Give nobody else
// rights in that namespace.
package kubernetes
