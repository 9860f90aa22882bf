// Package kubeconfig makes kubeconfigs that lead to a cluster through a
// proxy, the Secrets in which Cluster API keeps them, and clients that take
// that route.
//
// A [Spec] says where the API server is, how it is verified, who the user is
// and which [Route] leads there. [Spec.Build] makes the kubeconfig of it, with
// Cluster API's names and certificate profile; [Secret] puts it where Cluster
// API and everything beside it looks for it. [NewClient] is for the process
// itself: it turns any kubeconfig into a rest.Config and an HTTP client with
// one transport, which Close ends.
//
//	config, err := kubeconfig.Spec{
//		Name:        "prod",
//		Endpoint:    kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443},
//		CA:          ca.Data["tls.crt"],
//		Credentials: kubeconfig.Credentials{CAKey: ca.Data["tls.key"]},
//		Route:       kubeconfig.Route{ProxyURL: "http://user:password@proxy:3128"},
//	}.Build()
//	...
//	client, err := kubeconfig.NewClient(config, nil)
//	...
//	defer client.Close()
//	clientset, err := kubernetes.NewForConfig(client.Config())
//
// # When to use client-go alone
//
// client-go honours proxy-url by itself. What it does not do: keep the API
// server's TLS settings, client certificate included, away from an https
// proxy; tell socks5 passwords that are too long before the first dial; take
// a dial function without falling back to HTTPS_PROXY; close what it opened; and
// use a dial function for exec, attach and port-forward. A [Client] does: see
// [Client.Exec], [Client.PortForward], and its rest.Config with client-go's own.
//
// # Rotation without a restart
//
// A Client that is given a [Source] follows the kubeconfig: credentials, CA,
// address and route change under the clientsets that are in use.
//
//	source := kubeconfig.SecretSource(management, "default", "prod-kubeconfig")
//	config, err := source.Read(ctx)
//	...
//	client, err := kubeconfig.NewClient(config, &kubeconfig.ClientOptions{
//		Source:  source,
//		Changed: func(err error) { log.Print("kubeconfig of prod: ", err) },
//	})
//
// # What is wrong?
//
// [Probe] goes the way of a kubeconfig, and names the phase that fails, the
// cause, and what a person does about it:
//
//	if err := kubeconfig.Probe(ctx, config).Err(); err != nil {
//		log.Print(err) // kubeconfig: probe: proxy auth: the proxy answered 407: ...
//	}
//
// # Through a tunnel
//
// In the process that has the tunnel's server, ClientOptions.Dialer takes its
// dial function. Every other one goes through a gateway (package tunnel/gateway),
// for which [Route].Tunnel writes the kubeconfig:
//
//	user, password, err := tickets.Issue(gateway.Identity{Name: "controller", Cluster: "default/prod"}, 24*time.Hour)
//	...
//	Route: kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{
//		Gateway: "http://127.0.0.1:3128", User: user, Password: password, Cluster: "default/prod",
//	}},
//
// # In a kubeconfig that is there
//
// [Merge] puts a Spec, or the part of it that is set, into the kubeconfig of
// another program or person, and loses nothing of theirs; [NeedsRotation] says
// what of a kubeconfig is not as the Spec wants it, and [Rotate] renews that, the
// client certificate at half its life.
//
//	value, err := kubeconfig.Merge(secret.Data[kubeconfig.SecretKey], kubeconfig.Spec{
//		Route: kubeconfig.Route{ProxyURL: "http://user:password@proxy:3128"},
//	})
//	...
//	if !bytes.Equal(value, secret.Data[kubeconfig.SecretKey]) {
//		// something to write
//	}
//
// What proxy-url can't say is in an extension of the cluster entry, see
// [ExtensionName].
//
// # Security
//
// A kubeconfig is a secret, the proxy's password in its proxy-url too. The
// types of this package print without their secrets, and its errors hold none.
// What a kubeconfig says is never replaced by something weaker: a proxy-url
// that can't be parsed is an error, not a direct connection, and an empty CA
// file does not mean the system's roots.
//
// A Client that was used for exec or port-forward listens on 127.0.0.1. Who has
// the random password reaches the API server through it, and nothing else, and
// has shown it no credentials yet.
package kubeconfig
