package main

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/examples/internal/cli"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

const (
	ticketKeyFile = "tickets.key"
	gatewayFile   = "gateway" // the URL of the first door for tickets

	// apiServer is what every agent dials, and every API server's certificate
	// of kubeadm's names.
	apiServer = "https://kubernetes.default.svc:443"
)

// setTickets gives the key of the state to tickets; it is made if there is none.
func (s state) setTickets(t *gateway.Tickets) error {
	key, err := os.ReadFile(s.path(ticketKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.newTicketKey(os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		key, err = os.ReadFile(s.path(ticketKeyFile))
	}
	if err != nil {
		return err
	}
	return t.SetKeys(key)
}

func (s state) newTicketKey(put func(from, to string) error) error {
	key := make([]byte, 32)
	rand.Read(key)
	return s.write(ticketKeyFile, key, put)
}

// setGateway notes where clients with a ticket come in.
func (s state) setGateway(f *doorFlags) error {
	u := "http://" + f.connect
	switch {
	case f.connect == "" && f.connectTLS == "":
		return nil
	case f.connect == "":
		u = "https://" + f.connectTLS
	}
	return s.write(gatewayFile, []byte(u), os.Rename)
}

type ticketFlags struct {
	state, gateway, user *string
	life                 *time.Duration
}

func addTicketFlags(set *flag.FlagSet) ticketFlags {
	return ticketFlags{
		state:   stateFlag(set),
		gateway: set.String("gateway", "", "`URL` of the proxy as clients see it; default: the server's -connect or -connect-tls"),
		user:    set.String("user", "client", "`name` of who gets the ticket, for the log"),
		life:    set.Duration("life", 24*time.Hour, "how long the ticket is valid"),
	}
}

// issue returns the URL of the proxy, with a ticket for the cluster in it.
func (f ticketFlags) issue(cluster string) (*url.URL, error) {
	st, err := openState(*f.state)
	if err != nil {
		return nil, fmt.Errorf("tunnel-server: -state: %w", err)
	}
	text := *f.gateway
	if text == "" {
		b, err := os.ReadFile(st.path(gatewayFile))
		if err != nil {
			return nil, cli.UsageError{Text: "tunnel-server: where is the gateway? -gateway says it, or -connect of the server"}
		}
		text = string(b)
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return nil, cli.UsageError{Text: "tunnel-server: -gateway is not http://HOST:PORT, https:// or socks5://"}
	}
	var tickets gateway.Tickets
	if err := st.setTickets(&tickets); err != nil {
		return nil, fmt.Errorf("tunnel-server: -state: %w", err)
	}
	user, password, err := tickets.Issue(gateway.Identity{Name: *f.user, Cluster: cluster}, *f.life)
	if err != nil {
		return nil, err
	}
	u.User = url.UserPassword(user, password)
	return u, nil
}

// ticket prints the URL of the proxy: HTTPS_PROXY for any program.
func ticket(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server ticket", flag.ContinueOnError)
	f := addTicketFlags(set)
	revoke := set.Bool("revoke-all", false, "end all tickets instead, of all clusters")
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	if *revoke && len(positional) == 0 {
		st, err := openState(*f.state)
		if err != nil {
			return fmt.Errorf("tunnel-server: -state: %w", err)
		}
		return st.newTicketKey(os.Rename)
	}
	if *revoke || len(positional) != 1 {
		return cli.UsageError{Text: "tunnel-server ticket: one CLUSTER, or -revoke-all"}
	}
	u, err := f.issue(positional[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, u)
	return err
}

// kubeconfigCommand reads a kubeconfig that works beside the cluster, and prints
// it with the way through the tunnel.
func kubeconfigCommand(args []string, stdin io.Reader, stdout io.Writer) error {
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
	u, err := f.issue(positional[0])
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
