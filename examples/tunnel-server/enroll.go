package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/causewayproject/causeway/examples/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
)

// maxPayload is what a message of the tunnel takes, with room for the name.
const maxPayload = 1<<20 - 1<<10

func enroll(ctx context.Context, args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server enroll", flag.ContinueOnError)
	flags := addStateFlags(set)
	var addresses cli.List
	set.Var(&addresses, "server", "`address` of the server: host:port, or a wss URL; several are allowed; default: what the server was told to -advertise")
	format := set.String("format", "command", "the `format` of what is printed: one of "+strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
	life := set.Duration("life", time.Hour, "how long the token is valid")
	var d delivery
	set.StringVar(&d.Image, "image", "tunnel-agent:latest", "the `image` of the agent in a manifest")
	set.StringVar(&d.Namespace, "namespace", "tunnel-agent", "the `namespace` of the agent in a manifest")
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	render, ok := formats[*format]
	if len(positional) != 1 || !ok {
		return cli.UsageError{Text: "tunnel-server enroll: one CLUSTER, and a -format of " + strings.Join(slices.Sorted(maps.Keys(formats)), ", ")}
	}
	if *life <= 0 {
		return cli.UsageError{Text: "tunnel-server enroll: -life is not above zero"}
	}
	if err := checkServers("tunnel-server enroll: -server", addresses); err != nil {
		return err
	}
	st, server, err := flags.openServer(ctx)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		if addresses, err = servers(ctx, st); err != nil {
			return err
		}
	}
	if len(addresses) == 0 {
		return cli.UsageError{Text: "tunnel-server enroll: where is the server? -server says it, or -advertise of the server"}
	}
	if d.Invitation, err = server.Invite(ctx, positional[0], *life); err != nil {
		return err
	}
	d.Invitation.Servers = addresses
	return render(stdout, d)
}

// revoke takes a name that has not enrolled too: one that a Store has forgotten,
// or that another PKI is about to give.
func revoke(ctx context.Context, args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server revoke", flag.ContinueOnError)
	flags := addStateFlags(set)
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	if len(positional) != 2 {
		return cli.UsageError{Text: "tunnel-server revoke: CLUSTER and AGENT are required; /status of the server lists them"}
	}
	_, server, err := flags.openServer(ctx)
	if err != nil {
		return err
	}
	id := tunnel.Identity{Cluster: positional[0], Agent: positional[1]}
	if err := server.Revoke(ctx, id); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "agent %q of cluster %q is revoked, whether or not it ever connected: /status of the server lists those that are connected\n", id.Agent, id.Cluster)
	return err
}

func payload(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server payload", flag.ContinueOnError)
	flags := addStateFlags(set)
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	if len(positional) != 2 {
		return cli.UsageError{Text: "tunnel-server payload: CLUSTER and NAME are required, and the data on standard input"}
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxPayload+1))
	if err != nil {
		return err
	}
	if len(data) > maxPayload {
		return fmt.Errorf("tunnel-server payload: more than %d bytes", maxPayload)
	}
	st, err := flags.open(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return st.setPayload(ctx, positional[0], tunnel.Payload{Name: positional[1], Data: data})
}
