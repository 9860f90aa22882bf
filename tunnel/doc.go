// Package tunnel reaches clusters that nothing leads into. An [Agent] beside
// the cluster dials out to a [Server] beside the controllers, through a
// corporate proxy if there is one, and the server's process dials in through
// it:
//
//	server := &tunnel.Server{Authority: authority, Store: tunnel.DirStore{Dir: dir}}
//	go server.Serve(ctx, listener)
//	// ...
//	d := server.Dialer("default/prod") // a dialer like net.Dialer
//	config.Dial = d.DialContext        // of a rest.Config, say
//
// A dial takes one round trip and returns when an agent has connected the
// target, which it resolves itself. The connection behaves as one of TCP does:
// deadlines, half-close, and a reset that never looks like an end of file. A
// stream that nobody reads holds up nothing but itself.
//
// Words: a carrier is the TLS or WebSocket connection of an agent, a session
// the multiplexer on it, a stream one connection within, a target what an
// agent dials. SPEC.md beside this file is the wire format.
//
// # The wire is open
//
// Within TLS 1.3 the wire is yamux, and a peer built on github.com/hashicorp/yamux
// works as agent and as server: examples/yamux-agent is one that uses nothing of
// this module. The engine here is another, of the same wire, for what that one
// lacks: it fails three cases of net.Conn's conformance test (x/net/nettest),
// reads a clean end of file when its connection is cut, has no resets with a
// reason, ignores contexts, and holds 2.5 to 6 times the memory beside 200
// streams that nobody reads. Speed is not the reason: with the same windows that
// one has 80 to 98% of our throughput, for 1.1 to 1.35 times the CPU.
//
// # Trust
//
// The [Authority] of the Server signs its certificate and those of the agents;
// unless there is [Server.Identify], nothing else is trusted. A load balancer
// that terminates the outer TLS of a WebSocket sees neither credentials nor
// data. An agent begins with an [Invitation]: where the server is, a token that
// is good for one agent and one cluster, signed by the authority, and the hash of
// the authority's key. It makes its own key, checks the server against the hash
// before it sends the token, and gets a certificate with its [Identity], which it
// renews while it runs.
//
// Where every workload has a certificate already, by SPIFFE or a corporate PKI,
// agents need not enrol. Server.Identify verifies such a certificate and says
// whose it is; the Agent takes it from its field GetClientCertificate, keeps
// nothing, and follows its rotation. It knows the server by the pin still, since
// the server's own certificate, and those that replicas show each other, stay the
// Authority's. Revoke and AllowDial are for these agents, too.
//
// Whoever has not proven who they are gets little: at most 24 KiB of memory, one
// place of MaxPending until somebody else needs it, a few seconds, and no session.
// One address can't keep the agents of another one out.
//
// Both sides have a say in what is dialed. The Server's AllowDial decides who
// may dial which cluster. The Agent's [Targets] decide what may be dialed
// there: by default the API server as a pod finds it, and after the name was
// resolved, so that no name leads to loopback or to a cloud's metadata
// service.
//
// # Replicas
//
// Servers that share an Authority and a Store, behind one address, are one: a
// dial through any of them comes to the agent, wherever it is connected. Each
// has to know where the others are, by its field Peers, and asks them when it
// has no session for a cluster; nothing is written down. Agents hold sessions
// with two of them where there are two. The replicas trust each other: what one
// has allowed, the other dials.
//
// # When something else serves better
//
// If the API server can be reached through a proxy, package dialer does
// without an agent. If kubectl and other programs that can't be changed have
// to take the route, they need a front door: a listener whose connections are
// relayed to a Dialer.
package tunnel
