// Package kubeconfig makes and changes kubeconfigs that reach a cluster through
// a proxy or a tunnel, and the Secrets in which Cluster API keeps them. It makes
// no connection: package connect (kubeconfig/connect) does, by the route that is
// written here, and package probe (kubeconfig/probe) says why none can be made.
//
// A [Spec] says where the API server is, how it is verified, who the user is
// and by which [Route] it is reached. [Spec.Build] makes the kubeconfig of it, with
// Cluster API's names and certificate profile; [Secret] puts it where Cluster
// API and everything beside it looks for it.
//
//	config, err := kubeconfig.Spec{
//		Name:        "prod",
//		Endpoint:    kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443},
//		CA:          ca.Data["tls.crt"],
//		Credentials: kubeconfig.Credentials{CAKey: ca.Data["tls.key"]},
//		Route:       kubeconfig.Route{ProxyURL: "http://user:password@proxy:3128"},
//	}.Build()
//
// # Through a tunnel
//
// In the process that has the tunnel's server, connect.Options.Dialer takes its
// dial function. Every other process goes through a gateway (package
// tunnel/gateway), for which [Route].Tunnel writes the kubeconfig:
//
//	user, password, err := tickets.Issue(gateway.Identity{Name: "controller", Cluster: "default/prod"}, 24*time.Hour)
//	...
//	Route: kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{
//		Gateway: "http://127.0.0.1:3128", User: user, Password: password, Cluster: "default/prod",
//	}},
//
// # In an existing kubeconfig
//
// [Merge] puts a Spec, or the part of it that is set, into the kubeconfig of
// another program or person, and loses nothing of theirs. With Credentials.CAKey it renews
// the client certificate at half of its life.
//
//	value, err := kubeconfig.Merge(secret.Data[kubeconfig.SecretKey], kubeconfig.Spec{
//		Route: kubeconfig.Route{ProxyURL: "http://user:password@proxy:3128"},
//	})
//	...
//	if !bytes.Equal(value, secret.Data[kubeconfig.SecretKey]) {
//		// something to write
//	}
//
// An extension of the cluster entry holds the settings that proxy-url has no place
// for, see [ExtensionName].
//
// # Security
//
// A kubeconfig is a secret, the proxy's password in its proxy-url too. The
// types of this package print without their secrets, and its errors hold none.
// No setting of a kubeconfig is ever replaced by something weaker: a proxy-url
// that can't be parsed is an error, not a direct connection, and an empty CA
// file does not mean the system's roots.
package kubeconfig
