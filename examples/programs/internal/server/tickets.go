package server

import (
	"context"
	"crypto/rand"
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

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// apiServer is the address that every agent dials by default, and a name in the
// certificate of each API server that kubeadm has set up.
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

// issueTicket returns the URL of the proxy, with a ticket for the cluster in it.
func (f ticketFlags) issueTicket(ctx context.Context, cluster string) (*url.URL, error) {
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
			return nil, cli.UsageError{Text: "tunnel-server: the gateway's URL is unknown: set -gateway here, or -connect of the server"}
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
	if err := loadTickets(ctx, st, &t); err != nil {
		return nil, fmt.Errorf("tunnel-server: state: %w", err)
	}
	user, password, err := t.Issue(gateway.Identity{Name: *f.user, Cluster: cluster}, *f.life)
	if err != nil {
		return nil, err
	}
	u.User = url.UserPassword(user, password)
	return u, nil
}

// ticketKeySize is the size of each key in ticketKeyFile. The first one signs, the
// others did before a -revoke-all.
const ticketKeySize = 32

// tickets are the tickets that the state's key signs.
type tickets struct {
	gateway.Tickets
	revoked gateway.Tickets // with former keys
}

// loadTickets sets the keys of the tickets from the state, which gets one if it has
// none.
func loadTickets(ctx context.Context, st state, t *tickets) error {
	keys, err := st.read(ctx, ticketKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err := st.create(ctx, ticketKeyFile, newTicketKey()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		keys, err = st.read(ctx, ticketKeyFile)
	}
	if err != nil {
		return err
	}
	if len(keys) > ticketKeySize {
		former := slices.Collect(slices.Chunk(keys[ticketKeySize:], ticketKeySize))
		if err := t.revoked.SetKeys(former...); err != nil {
			return err
		}
		keys = keys[:ticketKeySize]
	}
	return t.SetKeys(keys)
}

// revokeTickets replaces the key of the state. Former keys are kept, so that clients
// with former tickets can be told what happened.
func revokeTickets(ctx context.Context, st state) error {
	const former = 4
	keys, err := st.read(ctx, ticketKeyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	keys = append(newTicketKey(), keys...)
	return st.replace(ctx, ticketKeyFile, keys[:min(len(keys), (1+former)*ticketKeySize)])
}

func newTicketKey() []byte {
	key := make([]byte, ticketKeySize)
	rand.Read(key)
	return key
}

// Authenticate lets clients with a ticket in, and tells clients with a former one how to
// get another.
func (t *tickets) Authenticate(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
	id, err := t.Tickets.Authenticate(ctx, c)
	var former *gateway.TicketError
	if errors.Is(err, gateway.ErrCredentials) && !errors.As(err, &former) {
		if former = t.findFormer(ctx, c); former != nil {
			err = former
		}
	}
	if former != nil {
		former.Hint = "make a new one with: causeway ticket " + former.Ticket.Identity.Cluster
	}
	return id, err
}

// findFormer returns nil if no former key has signed the client's ticket.
func (t *tickets) findFormer(ctx context.Context, c gateway.Credentials) (former *gateway.TicketError) {
	id, err := t.revoked.Authenticate(ctx, c)
	if err == nil {
		former = &gateway.TicketError{Ticket: gateway.Ticket{Identity: id}, Revoked: true}
	} else {
		errors.As(err, &former)
	}
	return former
}

// ticketCommand prints the URL of the proxy: HTTPS_PROXY for any program.
func ticketCommand(ctx context.Context, args []string, stdout io.Writer) error {
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
	u, err := f.issueTicket(ctx, positional[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, u)
	return err
}

// kubeconfigCommand reads a kubeconfig of the cluster, and prints it with the proxy URL
// and the server for the way through the tunnel.
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
	u, err := f.issueTicket(ctx, positional[0])
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
