package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/examples/internal/cli"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// apiServer is what every agent dials, and every API server's certificate of
// kubeadm's names.
const apiServer = "https://kubernetes.default.svc:443"

type ticketFlags struct {
	state         *stateFlags
	gateway, user *string
	life          *time.Duration
}

func addTicketFlags(set *flag.FlagSet) ticketFlags {
	return ticketFlags{
		state:   addStateFlags(set),
		gateway: set.String("gateway", "", "`URL` of the proxy as clients see it; default: the server's -connect or -connect-tls"),
		user:    set.String("user", "client", "`name` of who gets the ticket, for the log"),
		life:    set.Duration("life", 24*time.Hour, "how long the ticket is valid"),
	}
}

// issue returns the URL of the proxy, with a ticket for the cluster in it.
func (f ticketFlags) issue(ctx context.Context, cluster string) (*url.URL, error) {
	st, err := f.state.open(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	text := *f.gateway
	if text == "" {
		b, err := st.read(ctx, gatewayFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("tunnel-server: state: %w", err)
		}
		if err != nil {
			return nil, cli.UsageError{Text: "tunnel-server: where is the gateway? -gateway says it, or -connect of the server"}
		}
		text = string(b)
	}
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) || u.Hostname() == "" || u.Port() == "0" || u.User != nil {
		return nil, cli.UsageError{Text: "tunnel-server: -gateway is not http://HOST:PORT, https:// or socks5://"}
	}
	if *f.life <= 0 {
		return nil, cli.UsageError{Text: "tunnel-server: -life is not above zero"}
	}
	var t tickets
	if err := setTickets(ctx, st, &t); err != nil {
		return nil, fmt.Errorf("tunnel-server: state: %w", err)
	}
	user, password, err := t.Issue(gateway.Identity{Name: *f.user, Cluster: cluster}, *f.life)
	if err != nil {
		return nil, err
	}
	u.User = url.UserPassword(user, password)
	return u, nil
}

// Authenticate lets in who shows a ticket, and tells who shows a former one how to
// get another.
func (t *tickets) Authenticate(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
	id, err := t.Tickets.Authenticate(ctx, c)
	var former *gateway.TicketError
	if errors.Is(err, gateway.ErrCredentials) && !errors.As(err, &former) {
		if former = t.ofFormerKey(ctx, c); former != nil {
			err = former
		}
	}
	if former != nil {
		former.Hint = "make a new one with: tunnel-server ticket " + former.Ticket.Identity.Cluster
	}
	return id, err
}

// ofFormerKey returns nil if no former key has signed what the client shows.
func (t *tickets) ofFormerKey(ctx context.Context, c gateway.Credentials) (former *gateway.TicketError) {
	id, err := t.revoked.Authenticate(ctx, c)
	if err == nil {
		former = &gateway.TicketError{Ticket: gateway.Ticket{Identity: id}, Revoked: true}
	} else {
		errors.As(err, &former)
	}
	return former
}

// ticket prints the URL of the proxy: HTTPS_PROXY for any program.
func ticket(ctx context.Context, args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server ticket", flag.ContinueOnError)
	f := addTicketFlags(set)
	revoke := set.Bool("revoke-all", false, "end all tickets instead, of all clusters")
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	if *revoke && len(positional) == 0 {
		st, err := f.state.open(slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return revokeTickets(ctx, st)
	}
	if *revoke || len(positional) != 1 {
		return cli.UsageError{Text: "tunnel-server ticket: one CLUSTER, or -revoke-all"}
	}
	u, err := f.issue(ctx, positional[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, u)
	return err
}

// kubeconfigCommand reads a kubeconfig that works beside the cluster, and prints
// it with the way through the tunnel.
func kubeconfigCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server kubeconfig", flag.ContinueOnError)
	f := addTicketFlags(set)
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	if len(positional) != 1 {
		return cli.UsageError{Text: "tunnel-server kubeconfig: one CLUSTER, and its kubeconfig on standard input"}
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return fmt.Errorf("tunnel-server kubeconfig: standard input: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return fmt.Errorf("tunnel-server kubeconfig: standard input has no cluster for its context %q", config.CurrentContext)
	}
	u, err := f.issue(ctx, positional[0])
	if err != nil {
		return err
	}
	to := config.Clusters[current.Cluster]
	to.Server, to.ProxyURL = apiServer, u.String()
	out, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, strings.TrimSuffix(string(out), "\n")+"\n")
	return err
}
