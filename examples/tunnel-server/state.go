package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// A state is what servers and commands share.
type state interface {
	// server returns a Server that has the authority, made if there is none, and
	// the store.
	server(ctx context.Context) (*tunnel.Server, error)
	// read returns what is kept by a name; fs.ErrNotExist if nothing is.
	read(ctx context.Context, name string) ([]byte, error)
	// replace keeps it, whatever is there.
	replace(ctx context.Context, name string, data []byte) error
	// create keeps it if nothing is there; fs.ErrExist if something is.
	create(ctx context.Context, name string, data []byte) error

	setPayload(ctx context.Context, cluster string, p tunnel.Payload) error
	payloads(ctx context.Context, cluster string) ([]tunnel.Payload, error)
}

// What is kept by a name.
const (
	serversFile   = "servers"     // the addresses that agents are given, a line each
	ticketKeyFile = "tickets.key" // what signs tickets
	gatewayFile   = "gateway"     // the URL of the first door for tickets
)

type stateFlags struct{ dir string }

func addStateFlags(set *flag.FlagSet) *stateFlags {
	f := new(stateFlags)
	set.StringVar(&f.dir, "state", "/var/lib/tunnel-server", "`directory` of the authority's key, tokens and revocations")
	return f
}

// open does not make an authority yet.
func (f *stateFlags) open(_ *slog.Logger) (state, error) {
	st, err := openDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("tunnel-server: -state: %w", err)
	}
	return st, nil
}

// openServer opens the state for a command, beside a server that need not run.
// Closing the Server is needless: it serves nothing.
func (f *stateFlags) openServer(ctx context.Context) (state, *tunnel.Server, error) {
	st, err := f.open(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	server, err := st.server(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("tunnel-server: state: %w", err)
	}
	return st, server, nil
}

func setServers(ctx context.Context, st state, addresses []string) error {
	return st.replace(ctx, serversFile, []byte(strings.Join(addresses, "\n")+"\n"))
}

// servers returns none, and no error, where the server never advertised any.
func servers(ctx context.Context, st state) ([]string, error) {
	text, err := st.read(ctx, serversFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// setTickets gives the key of the state to tickets; it is made if there is none.
func setTickets(ctx context.Context, st state, t *gateway.Tickets) error {
	key, err := st.read(ctx, ticketKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err := st.create(ctx, ticketKeyFile, newTicketKey()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		key, err = st.read(ctx, ticketKeyFile)
	}
	if err != nil {
		return err
	}
	return t.SetKeys(key)
}

func newTicketKey() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
}

// setGateway notes where clients with a ticket come in, if the address of the
// door says so.
func setGateway(ctx context.Context, st state, f *doorFlags) error {
	scheme, address := "http://", f.connect
	if f.connect == "" {
		scheme, address = "https://", f.connectTLS
	}
	if host, _, err := net.SplitHostPort(address); err != nil || host == "" {
		return nil
	}
	return st.replace(ctx, gatewayFile, []byte(scheme+address))
}
