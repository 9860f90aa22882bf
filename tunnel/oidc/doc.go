// Package oidc lets agents join without a secret. An agent in a cluster shows a
// ServiceAccount token that the kubelet has put into its pod. [Issuers] verifies the
// token by the keys of that cluster and so knows which cluster it is:
//
//	issuers := &oidc.Issuers{Store: store}
//	err := issuers.Register(oidc.Registration{
//		Cluster:  "default/prod",
//		Issuer:   "https://kubernetes.default.svc.cluster.local",
//		Audience: "tunnel.example.com",
//		Subjects: []string{"system:serviceaccount:tunnel-agent:tunnel-agent"},
//		Keys:     jwks, // of /openid/v1/jwks of that cluster
//	})
//	server := &tunnel.Server{Authority: authority, Store: store, Enroller: issuers}
//
// Most clusters have the same issuer, so it does not tell them apart. The agent says
// which cluster it is of, and its token counts only if it was signed by a key of that
// cluster's Registration.
//
// # What a token must be
//
//   - Three parts of base64 in the one form that they have, at most 8 KiB. The header
//     has alg, and may have kid and typ; every other field is refused, so that no token
//     names its own key. alg is RS256, RS384, RS512, ES256, ES384 or ES512, which are
//     those of Kubernetes.
//   - It has the issuer, one of the subjects and the audience of the Registration,
//     and no other audience: whoever a token was shown to could show it here.
//   - It is bound to a pod, and lives for at most an hour. A token of the kind that
//     Kubernetes used to keep in Secrets has no end and no audience, and is refused.
//   - It is valid now. Clocks may differ by a minute, as at a Kubernetes API server.
//   - No other key has enrolled with it. A token is good for one agent.
//
// All of that but the last is checked before any key is fetched, and a signature is
// checked before a Store is called.
//
// # Security
//
// A Registration trusts whoever can sign for the issuer, or can make tokens for the
// subject: the administrators of that cluster. They can join as that cluster and as
// no other. An agent that was revoked joins again with a new key as long as the
// cluster is registered: remove the Registration first.
package oidc
