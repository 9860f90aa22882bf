package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// apiServer is the address that every agent dials by default, and a name in the
// certificate of each API server that kubeadm has set up.
const apiServer = "https://kubernetes.default.svc:443"

type ticketFlags struct {
	state         *stateFlags
	gateway, user string
	life          time.Duration
}

func (f *ticketFlags) add(set *pflag.FlagSet) {
	f.state = addStateFlags(set)
	set.StringVar(&f.gateway, "gateway", "", "`URL` of the proxy as clients see it; default: the server's --connect or --connect-tls")
	cli.Share(set, "gateway")
	set.StringVar(&f.user, "user", "", "`name` of the client that gets the ticket, for the log, the page and --limits; tickets with the same name are one client; default a new name, such as ticket-k3w7hq2n")
	set.DurationVar(&f.life, "life", 24*time.Hour, "how long the ticket is valid")
}

// checkCluster refuses a name with which no agent can enrol.
func checkCluster(name string) error {
	if name == "" || len(name) > 507 || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == '|' }) {
		return cli.Mistake("CLUSTER: want at most 507 bytes of UTF-8, without spaces, bars and characters that do not print")
	}
	return nil
}

// issueTicket returns the URL of the proxy, with a ticket for the cluster in it.
func (f *ticketFlags) issueTicket(ctx context.Context, cluster string, stderr io.Writer) (*url.URL, error) {
	if err := checkCluster(cluster); err != nil {
		return nil, err
	}
	st, err := f.state.open(ctx)
	if err != nil {
		return nil, err
	}
	text := f.gateway
	if text == "" {
		b, err := st.read(ctx, gatewayFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", f.state, err)
		}
		if err != nil {
			return nil, cli.Mistake("the gateway's URL is unknown: set --gateway here, or --connect of the server")
		}
		text = string(b)
	}
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) || hostport.Check(u.Hostname(), cmp.Or(u.Port(), "443")) != nil || u.User != nil || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		return nil, cli.Mistake("--gateway must be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")
	}
	if f.life < time.Second { // a ticket says its end in seconds
		return nil, cli.Mistake("--life must be at least 1s, such as 24h")
	}
	var t tickets
	if err := loadTickets(ctx, st, &t); err != nil {
		return nil, fmt.Errorf("%s: %w", f.state, err)
	}
	name := f.user
	if name == "" { // limits and fair shares are for each name
		name = "ticket-" + strings.ToLower(rand.Text()[:8])
	}
	user, password, err := t.Issue(gateway.Identity{Name: name, Cluster: cluster}, f.life)
	if err != nil {
		return nil, err
	}
	u.User = url.UserPassword(user, password)
	warnUnknown(ctx, st, cluster, "", stderr)
	return u, nil
}

// tickets are the tickets that the state's keys sign.
type tickets struct {
	gateway.Tickets
	former  gateway.Tickets // with the key that is accepted until rotate drop
	revoked gateway.Tickets // with keys of before a --revoke-all or a rotate drop

	mu         sync.Mutex                     // guards the fields below
	ends       map[string]time.Time           // when all of a cluster were void, as the store said last
	revokedIDs map[string]bool                // the tickets that were revoked one by one
	used       map[gateway.Identity]time.Time // uses of the former key that are not saved yet
}

// followRevocations has a revocation of all agents of a cluster (causeway revoke --all, or
// the end of a Cluster) end its tickets, too: a new cluster of the same name has clients of
// its own. While the store does not answer, what it said before counts.
func (t *tickets) followRevocations(st *state) {
	t.ends = map[string]time.Time{}
	t.setRevoked(func(ticket gateway.Ticket) bool {
		t.mu.Lock()
		revoked := t.revokedIDs[ticketID(ticket)]
		t.mu.Unlock()
		if revoked {
			return true
		}
		ctx, cancel := context.WithTimeout(context.Background(), revocationTimeout)
		defer cancel()
		cluster := ticket.Identity.Cluster
		at, err := st.Revoked(ctx, tunnel.Identity{Cluster: cluster})
		if err == nil {
			var began time.Time
			if began, err = clusterBegan(ctx, st, cluster); began.After(at) {
				at = began
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case err != nil:
			at = t.ends[cluster]
		case !at.IsZero():
			t.ends[cluster] = at
		}
		return !ticket.Issued.After(at)
	})
}

func (t *tickets) setRevoked(revoked func(gateway.Ticket) bool) {
	t.Tickets.Revoked, t.former.Revoked = revoked, revoked
}

// revocationTimeout is how long a client waits for a store that does not answer.
const revocationTimeout = 3 * time.Second

// loadTickets sets the keys of the tickets from the state, and reads which were revoked.
func loadTickets(ctx context.Context, st *state, t *tickets) error {
	k, err := readTicketKeys(ctx, st)
	if err != nil {
		return err
	}
	accepted, former := [][]byte{k.signs}, newTicketKey() // that nobody has
	switch {
	case k.next != nil:
		accepted = append(accepted, k.next)
	case k.former != nil:
		former = k.former
	}
	if k.former == nil {
		t.mu.Lock()
		t.used = nil // what saveUses has not saved was of a key that was dropped
		t.mu.Unlock()
	}
	err = errors.Join(t.SetKeys(accepted...), t.former.SetKeys(former))
	if len(k.revoked) > 0 {
		err = errors.Join(err, t.revoked.SetKeys(k.revoked...))
	}
	if err != nil {
		return err
	}
	return t.loadRevoked(ctx, st)
}

// Authenticate lets clients with a ticket in, and tells clients with a revoked one how to
// get another.
func (t *tickets) Authenticate(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
	id, err := t.Tickets.Authenticate(ctx, c)
	var told *gateway.TicketError
	if errors.Is(err, gateway.ErrCredentials) && !errors.As(err, &told) {
		if id, err = t.former.Authenticate(ctx, c); err == nil {
			t.noteUse(id)
		} else if !errors.As(err, &told) {
			if told = t.findRevoked(ctx, c); told != nil {
				err = told
			}
		}
	}
	if told != nil {
		told.Hint = "make a new one with: causeway ticket " + told.Ticket.Identity.Cluster
	}
	return id, err
}

// findRevoked returns nil if no revoked key has signed the client's ticket.
func (t *tickets) findRevoked(ctx context.Context, c gateway.Credentials) (told *gateway.TicketError) {
	id, err := t.revoked.Authenticate(ctx, c)
	if err == nil {
		told = &gateway.TicketError{Ticket: gateway.Ticket{Identity: id}, Revoked: true}
	} else {
		errors.As(err, &told)
	}
	return told
}

func ticketCommand() *cobra.Command {
	var f ticketFlags
	var revoke, revokeAll bool
	cmd := &cobra.Command{
		Use:   "ticket CLUSTER",
		Short: "print a proxy URL that leads to CLUSTER: HTTPS_PROXY for any program",
		Long: `Prints the URL of the server's proxy with a ticket for CLUSTER in it: HTTPS_PROXY for any
program. With --revoke it ends the ticket on standard input instead, the URL or a kubeconfig
that has it; with --revoke-all all tickets, of all clusters. Servers know it within --watch.
Connections that are open stay open.`,
		Example: `  HTTPS_PROXY=$(causeway ticket default/prod) curl -k https://kubernetes.default.svc/version
  causeway ticket --revoke <prod.conf
  causeway ticket --revoke-all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case revoke && len(args) > 0:
				return cli.Mistake("--revoke reads the ticket from standard input: leave CLUSTER out")
			case revokeAll && len(args) > 0:
				return cli.Mistake("--revoke-all ends the tickets of all clusters: leave CLUSTER out")
			case revoke || revokeAll:
				return f.revoke(cmd, revokeAll)
			}
			if err := command.Args(cmd, args); err != nil {
				return err
			}
			u, err := f.issueTicket(cmd.Context(), args[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), u)
			return err
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&revoke, "revoke", false, "end the ticket on standard input instead: its URL, or a kubeconfig that has it")
	cmd.Flags().BoolVar(&revokeAll, "revoke-all", false, "end all tickets instead, of all clusters")
	cli.Exclude(cmd.Flags(), "revoke", "revoke-all")
	return cmd
}

// revoke ends all tickets, or the one on standard input.
func (f *ticketFlags) revoke(cmd *cobra.Command, all bool) error {
	st, err := f.state.open(cmd.Context())
	if err != nil {
		return err
	}
	said := "all tickets of all clusters are revoked, however many there were (they are not recorded): each client needs a new one. Connections that are open stay open"
	if all {
		err = revokeTickets(cmd.Context(), st)
	} else {
		var t gateway.Ticket
		t, err = revokeTicket(cmd.Context(), st, cmd.InOrStdin())
		said = fmt.Sprintf("the ticket of %s for %s is revoked, which was to end at %s", t.Identity.Name, t.Identity.Cluster, t.Expires.UTC().Format("2006-01-02 15:04:05 MST"))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
	return err
}

func kubeconfigCommand() *cobra.Command {
	var f ticketFlags
	cmd := &cobra.Command{
		Use:                   "kubeconfig CLUSTER <FILE",
		DisableFlagsInUseLine: true, // they would stand behind <FILE
		Short:                 "give a kubeconfig of CLUSTER the route through the tunnel",
		Long: `Reads a kubeconfig of CLUSTER on standard input, and prints it with the server's proxy, a
ticket for CLUSTER, and the API server's name beside the agent.`,
		Example: "  causeway kubeconfig default/prod <admin.conf >prod.conf",
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := readKubeconfig(cmd.InOrStdin())
			if err != nil {
				return err
			}
			to := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
			if u, err := url.Parse(to.Server); err == nil && strings.Trim(u.Path, "/") != "" {
				return fmt.Errorf("standard input: server has the path %s, which the API server beside the agent does not have: want a kubeconfig of that API server", cli.Quote(u.Path))
			}
			u, err := f.issueTicket(cmd.Context(), args[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			to.Server, to.ProxyURL = apiServer, u.String()
			out, err := clientcmd.Write(*config)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), strings.TrimSuffix(string(out), "\n")+"\n")
			return err
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// readKubeconfig reads one whose current context has a cluster.
func readKubeconfig(r io.Reader) (*clientcmdapi.Config, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	config, err := kubeconfig.Load(text)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return nil, fmt.Errorf("standard input has no cluster for its context %q", config.CurrentContext)
	}
	return config, nil
}

// revokedPrefix begins the names of the tickets that were revoked one by one; their ids
// follow.
const revokedPrefix = "ticket-revoked-"

// revokedTicket is the value of such a name.
type revokedTicket struct {
	Until time.Time `json:"until"` // it has ended then by itself
}

// ticketID returns the same for a ticket each time, and another text for another one.
func ticketID(t gateway.Ticket) string {
	return hashName(fmt.Sprintf("%q %q %d %d", t.Identity.Name, t.Identity.Cluster, t.Issued.UnixNano(), t.Expires.UnixNano()))
}

// loadRevoked reads which tickets were revoked one by one.
func (t *tickets) loadRevoked(ctx context.Context, st *state) error {
	all, err := st.Store.List(ctx, tunnel.KindValue, revokedPrefix)
	if err != nil {
		return err
	}
	ids := make(map[string]bool, len(all))
	for _, r := range all {
		ids[strings.TrimPrefix(r.Name, revokedPrefix)] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revokedIDs = ids
	return nil
}

// revokeTicket revokes the ticket in a kubeconfig, or in the URL that causeway ticket has
// printed. The records of revoked tickets that have ended are deleted.
func revokeTicket(ctx context.Context, st *state, from io.Reader) (gateway.Ticket, error) {
	user, err := readTicket(from)
	if err != nil {
		return gateway.Ticket{}, err
	}
	var t tickets
	if err := loadTickets(ctx, st, &t); err != nil {
		return gateway.Ticket{}, err
	}
	var ticket gateway.Ticket
	t.setRevoked(func(shown gateway.Ticket) bool {
		ticket = shown
		return false
	})
	password, _ := user.Password()
	if _, err := t.Authenticate(ctx, gateway.Credentials{User: user.Username(), Password: password}); err != nil {
		if former, ok := errors.AsType[*gateway.TicketError](err); ok {
			former.Hint = ""
			return gateway.Ticket{}, fmt.Errorf("standard input: %w: nothing is left to revoke", former)
		}
		return gateway.Ticket{}, errors.New("standard input: the ticket was not made by this server: name its own --state or --secrets")
	}
	if err = st.putJSON(ctx, revokedPrefix+ticketID(ticket), revokedTicket{ticket.Expires}); err == nil {
		err = forgetEnded(ctx, st)
	}
	return ticket, err
}

// forgetEnded removes the revocations of tickets that have ended a day ago, so that
// clocks need not agree. One whose end can't be read stays.
func forgetEnded(ctx context.Context, st *state) error {
	all, err := st.Store.List(ctx, tunnel.KindValue, revokedPrefix)
	for _, record := range all {
		var r revokedTicket
		if json.Unmarshal(record.Data, &r) != nil || r.Until.IsZero() || time.Since(r.Until) < 24*time.Hour {
			continue
		}
		err = errors.Join(err, st.Store.Delete(ctx, record))
	}
	return err
}

var errNoTicket = cli.Mistake("standard input has no ticket: want the URL that causeway ticket printed, or the kubeconfig that has it")

// readTicket returns user and password of the URL, or of the proxy-url of the kubeconfig's
// current context.
func readTicket(from io.Reader) (*url.Userinfo, error) {
	text, err := io.ReadAll(io.LimitReader(from, 1<<20))
	if err != nil {
		return nil, err
	}
	line := strings.TrimSpace(string(text))
	if strings.ContainsAny(line, " \n{") {
		config, err := readKubeconfig(strings.NewReader(line))
		if err != nil {
			return nil, err
		}
		line = config.Clusters[config.Contexts[config.CurrentContext].Cluster].ProxyURL
	}
	u, err := url.Parse(line)
	if err != nil || u.User == nil {
		return nil, errNoTicket // err has the ticket
	}
	return u.User, nil
}
