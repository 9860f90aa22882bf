// Package kubernetes lets tunnel servers and gateways that run in a cluster keep
// what they share there, and nothing else: any number of replicas behind one
// Service, without a database and without a list of each other.
//
//   - [EndpointSlices]: who the replicas are, from the Service.
//   - [SecretStore]: tokens and revocations, a [tunnel.Store] in Secrets.
//   - [AuthoritySecret]: the one [tunnel.Authority] of all replicas.
//   - [TokenReview]: clients of a gateway that show a ServiceAccount's token.
//
// Nothing is written for each connection or each cluster. While the API server
// is away, what was known last counts: sessions live on, the replicas stay, and
// agents come back, for [SecretStore.MaxStale]. What has to be decided anew fails:
// an enrolment, a client that is not remembered. What else can be cut off, and
// what comes of it, is in examples/deploy/FAULTS.md.
//
//	authority, err := kubernetes.AuthoritySecret{Client: client, Namespace: ns, Name: "tunnel-authority"}.LoadOrCreate(ctx)
//	store := &kubernetes.SecretStore{Client: client, Namespace: ns}
//	server := &tunnel.Server{Authority: authority, Store: store}
//	store.Expel = func(id tunnel.Identity) { server.Revoke(ctx, id) }
//	go store.Run(ctx)
//
// # Rights
//
// Each type says what it takes. Together, in the namespace of the servers:
//
//	endpointslices (discovery.k8s.io)                list, watch
//	secrets                                          get, list, watch, create, update, delete
//
// and in the whole cluster, for TokenReview:
//
//	tokenreviews (authentication.k8s.io)             create
//	subjectaccessreviews (authorization.k8s.io)      create
//
// Whoever can write those Secrets can let revoked agents in, and whoever can read
// the authority's can be any agent and any server: let nobody else in that
// namespace.
package kubernetes
