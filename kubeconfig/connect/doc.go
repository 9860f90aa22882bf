// Package connect makes clients of a cluster that take the route of its
// kubeconfig: a proxy, a tunnel's gateway, several endpoints.
//
// [New] turns any kubeconfig into a rest.Config for this process, with one transport,
// which Close ends.
//
//	client, err := connect.New(config, nil)
//	...
//	defer client.Close()
//	clientset, err := kubernetes.NewForConfig(client.Config())
//
// # When to use client-go without it
//
// client-go honours proxy-url by itself. It does not: keep the API
// server's TLS settings, client certificate included, away from an https
// proxy; tell socks5 passwords that are too long before the first dial; take
// a dial function without falling back to HTTPS_PROXY; close what it opened; and
// use a dial function for exec, attach and port-forward. A [Client] does: client-go's
// own executors and port-forwarders take its route, made of [Client.Config].
//
// # Rotation without a restart
//
// A [Cache] holds the Clients of many kubeconfig Secrets. They follow their Secrets:
// credentials, CA, address and route change under the clientsets that are in use.
//
// # Security
//
// A Client prints without its secrets, and its errors hold none. A Client that
// was used for exec or port-forward listens on loopback. Only a program that has the
// random password can reach the API server through it, and nothing else; the API
// server still asks for credentials.
package connect
