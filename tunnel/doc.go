// Package tunnel reaches clusters that accept no connections from outside. An
// [Agent] beside the cluster dials out to a [Server] beside the controllers, through
// a corporate proxy if necessary, and the server's process dials in through it:
//
//	server := &tunnel.Server{Authority: authority, Store: tunnel.DirStore{Dir: dir}}
//	go server.Serve(ctx, listener)
//	// ...
//	d := server.Dialer("default/prod") // a dialer like net.Dialer
//	config.Dial = d.DialContext        // for example of a rest.Config
//
// A dial takes one round trip and returns when an agent has connected to the target,
// whose name the agent resolves. The connection behaves like one of TCP: it has
// deadlines and half-close, and a reset never looks like an end of file. A stream
// that nobody reads does not hold up any other.
//
// Words: a carrier is the TLS or WebSocket connection of an agent, a session is the
// multiplexer on it, a stream is one connection within the session, and a target is
// what an agent dials. SPEC.md beside this file describes the wire format.
//
// # The wire is open
//
// Within TLS 1.3 the wire is yamux. A peer built on github.com/hashicorp/yamux works
// as agent and as server: internal/test/yamuxagent has an agent that uses nothing of
// this module. This package has its own engine for that wire, because hashicorp/yamux
// fails three cases of net.Conn's conformance test (x/net/nettest), reads a clean end
// of file when its connection is cut, has no resets with a reason, ignores contexts,
// and holds 2.5 to 6 times the memory beside 200 streams that nobody reads. Speed is
// not the reason: with the same windows it has 80 to 98% of our throughput, for 1.1
// to 1.35 times the CPU.
//
// # Trust
//
// The [Authority] of the Server signs the Server's certificate and those of the
// agents. Nothing else is trusted. A load balancer that terminates the outer TLS of a
// WebSocket sees neither credentials nor data. An
// agent begins with an [Invitation]: the server's address, a token for one cluster and
// one agent or several, signed by the authority, and the hash of the authority's key. The
// agent makes its own key, checks the server against the hash before it sends the
// token, and gets a certificate with its [Identity], which it renews while it runs.
//
// If the agents' platform gives them tokens, such as those of ServiceAccounts, an
// [Enroller] verifies them in place of invitations, so that nothing secret has to be
// carried to a cluster.
//
// A client without a proven identity gets little: at most 24 KiB of memory, one
// place of MaxPending until another client needs it, a few seconds, and no session.
// One address can't keep out the agents of another.
//
// Both sides decide what may be dialed. The Server's AllowDial decides which caller may
// dial which cluster. The Agent's [Targets] decide what may be dialed there: by default
// only the API server, as a pod finds it. They are applied after the name was
// resolved, so that no name leads to loopback or to a cloud's metadata service.
//
// # Several agents
//
// A cluster may have any number of agents. Dials use the one with the fewest streams, and
// try the next one if a session is lost. Each has an invitation of its own, or one that
// is for several (InviteAgents), or they are processes that share credentials, such as the pods of a Deployment with one Secret:
// then each has a name, the field Replica of the Agent, and [CredentialStore] says how
// they share.
//
// # Replicas
//
// Servers that share an Authority and a Store, behind one address, act as one: a
// dial through any of them gets to the agent, whichever of them it is connected to.
// Each Server learns by its field Peers where the others are, and asks them if it has
// no session for a cluster; nothing is written down. Agents keep sessions with two
// replicas. The replicas trust each other: if one has allowed a dial, another
// forwards it.
//
// # When something else serves better
//
// If a proxy leads to the API server, package dialer needs no agent. If kubectl and
// other programs that can't be changed have to take the route, they need a listener
// whose connections are relayed to a Dialer: package gateway has several.
package tunnel
