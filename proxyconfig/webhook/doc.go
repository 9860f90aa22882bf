// Package webhook is the admission webhook that puts a proxy's variables into
// pods: package proxyconfig's Injector behind AdmissionReview v1.
//
// A [Handler] answers for the CREATE of pods and the UPDATE of
// pods/ephemeralcontainers. It has no state and no side effect, dry run or not:
// register it with sideEffects None. Since the variables are not put in twice,
// reinvocationPolicy IfNeeded is right: containers that another webhook adds
// later get them, too.
//
//	certificate, err := webhook.LoadCertificate("tls.crt", "tls.key", nil)
//	server := &webhook.Server{
//		Handler: webhook.New(injector, webhook.Options{}),
//		TLS:     &tls.Config{GetCertificate: certificate.Get},
//		Grace:   10 * time.Second,
//	}
//	err = server.Serve(ctx, listener)
//
// A [ReviewFunc] is another webhook for a [Server].
//
// # What fails, and what then
//
// The Handler never denies a pod. A request that it can't answer, such as a body that
// is no AdmissionReview, gets an HTTP error, and the API server does what the
// failurePolicy says: with Fail the pod is refused, with Ignore it is created
// without the variables, and nothing repairs that later. Fail wants a
// namespaceSelector that leaves out the webhook's own namespace and kube-system,
// or a cluster whose webhook is down can't start it.
//
// It allows all other requests that it can read, a DELETE or a ConfigMap, without
// a change.
//
// # Strangers
//
// A [Server] bounds what clients cost that are no API server. Put it in front: a Handler in
// another server bounds the size of a body, and nothing else.
//
//	connections     256, and 1,024 that wait and are not read
//	handshake       5 s
//	header          5 s, 64 lines, 20 KiB
//	body            10 s, 8 MiB; those of more than 64 KiB have 8 MiB together
//	parsing         4 bodies at once, or one that is large; 131,072 values each
//	answer          10 s to read it; one of more than 64 KiB counts as a body
//
// If all places are taken, a new connection takes that of another one, of the address with
// the most. A larger body or answer that its client is slow with is ended after 250 ms if
// another one waits for room. So strangers at other addresses don't keep the API server
// out. At its own address, such as behind one NAT, it competes with them: there only a
// NetworkPolicy or client certificates help.
//
// The Server speaks HTTP/1.1 only: HTTP/2 has many requests in a connection, and API
// servers don't use it for webhooks.
//
// # Readers of the credentials
//
// With Options.Plain they are in the answers, and every client that reaches the port
// may ask for one. Let that be only the API server (a client certificate, or a
// NetworkPolicy), or let the credentials be in a Secret, as they are by default:
// answers then have its name. No Hook gets a value.
package webhook
