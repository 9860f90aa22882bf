package bench

import (
	"context"
	"fmt"
	"net"
)

// A row is one way from the client to the target. Its two halves run in
// processes of their own, and only know of each other what they send each other.
type row struct {
	name string

	// newServer is nil where the client dials the target itself, newAgent where
	// the server does.
	newAgent  func(*Setup) (agent, error)
	newServer func(*Setup) (server, error)
	newClient func(*Setup) (dialFunc, error) // nil: it dials where it is told to

	idleAgents int // how many to connect for the memory of one; zero: agents of this row can't idle
}

// A Setup is what a half is told before it starts.
type Setup struct {
	Row    string
	Dir    string // has the certificates, and room for what a half wants to write
	Target string // host:port; the agent's, and what the server's dial asks for
	Peer   string // the server's half: where the agent listens, if it does
}

// An agent is the half beside the target. Close ends what connect started.
type agent interface {
	// addr is where the agent listens for the server, or "".
	addr() string
	// connect opens n more sessions to the server, as agents of their own, and
	// returns when they are up: the address that clients connect to, where the
	// agent decides it, else "".
	connect(ctx context.Context, server string, n int) (string, error)
	Close() error
}

// A server is the half beside the clients. Close ends its sessions.
type server interface {
	// addr is where the server listens for agents, or "".
	addr() string
	// sessions is the number of agents that are connected.
	sessions() int
	// dial opens a connection to the target through the first agent.
	dial(ctx context.Context) (net.Conn, error)
	Close() error
}

// A dialFunc is how clients get to the target by way of the server.
type dialFunc func(ctx context.Context, server string) (net.Conn, error)

// A door is a server that lets clients in itself; it does without dial.
type door interface {
	// front is where clients get in.
	front() string
}

// A relayer is a server that has a relay of its own.
type relayer interface {
	relay(client, target net.Conn)
}

// A parent is a half whose work is done by processes that it started: theirs
// is the CPU time and the memory.
type parent interface {
	childPIDs() []int
}

// allRows is every row, in the order of the table. The first is the fastest that
// this machine can be.
func allRows() []row {
	return []row{loopbackRow, limitRow, yamuxRow, yamuxFairRow, remotedialerRow, opensshRow, causewayRow, wsRow, wssRow, replicaRow,
		gatewayRow, gatewayTLSRow, gatewayMTLSRow, relayRow, gatewayPlainRow}
}

func chooseRow(name string) (row, error) {
	for _, r := range allRows() {
		if r.name == name {
			return r, nil
		}
	}
	return row{}, fmt.Errorf("there is no row %q", name)
}
