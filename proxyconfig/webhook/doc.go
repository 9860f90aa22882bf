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
//	h := webhook.New(injector, webhook.Options{})
//	server := &http.Server{
//		Handler:           h,
//		TLSConfig:         &tls.Config{GetCertificate: certificate.Get},
//		ReadHeaderTimeout: 5 * time.Second,
//		ReadTimeout:       10 * time.Second,
//		WriteTimeout:      10 * time.Second,
//	}
//	err = server.ServeTLS(listener, "", "")
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
// A Handler bounds what a request costs: the memory for large bodies and answers
// (Options.MaxBytes), how many bodies are parsed at once, and how many values one may
// have. The http.Server has to bound the rest: how many connections there are, and how
// long a request may take (ReadTimeout, WriteTimeout). HTTP/2 has many requests in a
// connection; API servers don't use it for webhooks, so leave it out.
//
// # Readers of the credentials
//
// With Options.Plain they are in the answers, and every client that reaches the port
// may ask for one. Let that be only the API server (a client certificate, or a
// NetworkPolicy), or let the credentials be in a Secret, as they are by default:
// answers then have its name. No Hook gets a value.
package webhook
