package server

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/restconfig"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/oidc"
)

// joinSubject is the ServiceAccount of the agent's manifest.
const joinSubject = "system:serviceaccount:tunnel-agent:tunnel-agent"

func joinCommand() *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "join",
		Short: "let the agents of a cluster in by their ServiceAccount's token",
		Long: `Lets the agents of a cluster in by the token of their ServiceAccount, which the kubelet puts
into their pod: no secret is carried to the cluster. A server that runs follows within its
--watch.`,
		Example: "  causeway join list",
	}, joinAddCommand(), joinListCommand(), joinRemoveCommand())
}

// joinFlags are those of join add.
type joinFlags struct {
	state                                   *stateFlags
	issuer, jwks, from, ca, proxy, audience string
	subjects                                cli.List
}

func joinAddCommand() *cobra.Command {
	f := new(joinFlags)
	cmd := &cobra.Command{
		Use:   "add CLUSTER",
		Short: "register CLUSTER, or replace its registration",
		Long: `Registers CLUSTER, or replaces its registration: whose tokens its agents join with.

With --from, the issuer and its public keys are read from the cluster, once; so they are with
--jwks from a file. If the cluster gets another key, add it again. Without either, the server
fetches the keys from the issuer, a URL of https, and follows when they change: through
--proxy, or else as the server's environment says.

A token is good for one agent. It has to be for the --audience and no other, to be of a
--subject, to be bound to a pod, and to live for an hour or less.`,
		Example: `  causeway join add default/prod --from admin.conf
  causeway join add default/prod --issuer https://oidc.eks.eu-west-1.amazonaws.com/id/0123456789ABCDEF
  causeway join add default/prod --issuer https://kubernetes.default.svc.cluster.local --jwks prod.jwks`,
		Args: command.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	set := cmd.Flags()
	f.state = addStateFlags(set)
	set.StringVar(&f.from, "from", "", "kubeconfig `file` that leads to CLUSTER, whose issuer and keys are read there")
	set.StringVar(&f.issuer, "issuer", "", "`URL` of the issuer, as the cluster's tokens have it")
	set.StringVar(&f.jwks, "jwks", "", "`file` of the issuer's public keys: a JWK set, or PEM; default: they are fetched from the issuer")
	set.StringVar(&f.ca, "ca", "", "PEM `file` of the authority of the issuer's certificate; default: the server machine's")
	set.StringVar(&f.proxy, "proxy", "", "`URL` of the proxy that leads the server to the issuer, or direct; default: its environment's")
	set.StringVar(&f.audience, "audience", "", "`audience` of the tokens; default: one of this installation, which list prints")
	set.Var(&f.subjects, "subject", "`ServiceAccount` that may join, as the tokens have it; several are allowed; default: "+joinSubject)
	cli.Exclude(set, "from", "issuer", "jwks", "ca", "proxy")
	cli.Exclude(set, "jwks", "ca", "proxy")
	return cmd
}

func (f *joinFlags) run(ctx context.Context, cluster string, stdout io.Writer) error {
	r, err := f.record(ctx, cluster)
	if err != nil {
		return err
	}
	st, err := f.state.open(ctx)
	if err != nil {
		return err
	}
	if r.Audience == "" {
		if r.Audience, err = joinAudience(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", f.state, err)
		}
	}
	if err := r.check(); err != nil {
		return err
	}
	if err = st.putJSON(ctx, joinFile(cluster), r); err == nil {
		err = noteCluster(ctx, st, cluster)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.state, err)
	}
	_, err = fmt.Fprintf(stdout, "agents of cluster %q may join with a token of %s\n  audience %s\n  subject  %s\n  keys     %s\n",
		cluster, r.Issuer, r.Audience, strings.Join(r.Subjects, ", "), r.keysText())
	return err
}

// record returns what the flags say. The audience may be empty.
func (f *joinFlags) record(ctx context.Context, cluster string) (r joinRecord, err error) {
	if f.from == "" && f.issuer == "" {
		return r, cli.Mistake("one of --issuer and --from must be set")
	}
	r = joinRecord{Cluster: cluster, Issuer: f.issuer, Audience: f.audience, Subjects: f.subjects, Proxy: f.proxy}
	if len(r.Subjects) == 0 {
		r.Subjects = []string{joinSubject}
	}
	if f.from != "" {
		if r.Issuer, r.Keys, err = readIssuer(ctx, f.from); err != nil {
			return r, fmt.Errorf("--from: %w", err)
		}
	}
	for _, file := range []struct {
		flag, name string
		to         *string
	}{{"--jwks", f.jwks, &r.Keys}, {"--ca", f.ca, &r.CA}} {
		if file.name == "" {
			continue
		}
		text, err := os.ReadFile(file.name)
		switch {
		case err != nil:
			return r, fmt.Errorf("%s: %w", file.flag, err)
		case len(text) == 0 || len(text) > maxIssuer:
			return r, cli.Mistake("%s: %s is empty, or has more than %d bytes", file.flag, file.name, maxIssuer)
		}
		*file.to = string(text)
	}
	return r, nil
}

// check returns a mistake that names the flag.
func (r joinRecord) check() error {
	for i, text := range append([]string{r.Issuer, r.Audience}, r.Subjects...) {
		if printable.Text(text, maxJoinText) != text {
			flag := [...]string{"--issuer, or the issuer that --from has read,", "--audience", "--subject"}[min(i, 2)]
			return cli.Mistake("%s has more than %d bytes, or a character that does not print: %s", flag, maxJoinText, printable.Text(text, printable.Most))
		}
	}
	to, err := r.registration()
	if err != nil {
		return cli.Mistake("%v", err)
	}
	// The library is asked again by the server, which has the same version.
	prefix := fmt.Sprintf("oidc: registration of %q: field ", r.Cluster)
	return cli.FieldMistake(new(oidc.Issuers).Register(to),
		prefix+"Issuer", "--issuer", prefix+"Keys", "the keys", prefix+"Subjects", "--subject", "oidc: registration: field Cluster", "CLUSTER")
}

func (r joinRecord) keysText() string {
	if r.Keys != "" {
		return "fixed"
	}
	if u, err := dialer.ParseURL(r.Proxy); err == nil {
		return "fetched through " + u.Redacted()
	}
	return "fetched"
}

const (
	maxIssuer     = 256 << 10 // bytes of the keys
	maxJoinText   = 2 << 10
	issuerTimeout = 30 * time.Second
)

// readIssuer asks the API server of a kubeconfig who signs its tokens, and by which keys.
func readIssuer(ctx context.Context, file string) (issuer, keys string, err error) {
	config, err := restconfig.Load(file)
	if err != nil {
		return "", "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	get := func(path string) []byte {
		var text []byte
		if err == nil {
			text, err = client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		}
		return text
	}
	document, set := get("/.well-known/openid-configuration"), get("/openid/v1/jwks")
	if err != nil {
		return "", "", err
	}
	var found struct {
		Issuer string `json:"issuer"`
	}
	if json.Unmarshal(document, &found) != nil || found.Issuer == "" || len(set) > maxIssuer {
		return "", "", errors.New("the API server does not say who issues its tokens")
	}
	return found.Issuer, string(set), nil
}

func joinListCommand() *cobra.Command {
	return stateCommand(&cobra.Command{
		Use:     "list",
		Short:   "print the clusters that are registered, and the audience of this installation",
		Example: "  causeway join list",
		Args:    command.Args,
	}, func(cmd *cobra.Command, f *stateFlags, st *state, _ []string) error {
		audience, err := joinAudience(cmd.Context(), st)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		records, listErr := readJoins(cmd.Context(), st)
		if listErr != nil {
			listErr = fmt.Errorf("%s: %w", f, listErr)
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "the audience of this installation is %s\n\nCLUSTER\tISSUER\tKEYS\tAUDIENCE\tSUBJECTS\n", audience)
		for _, r := range records {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Cluster, printable.Text(r.Issuer, maxJoinText), r.keysText(), r.Audience, strings.Join(r.Subjects, ","))
		}
		return errors.Join(w.Flush(), listErr)
	})
}

func joinRemoveCommand() *cobra.Command {
	return stateCommand(&cobra.Command{
		Use:   "remove CLUSTER",
		Short: "let no more agents of CLUSTER join",
		Long: `Lets no more agents of CLUSTER join. Those that have joined keep their certificates, and
renew them. To end them all, wait until each server has logged the removal: an agent that joins
in between stays. Then causeway revoke CLUSTER --all.`,
		Example: "  causeway join remove default/prod",
		Args:    command.Args,
	}, func(cmd *cobra.Command, f *stateFlags, st *state, args []string) error {
		_, err := st.read(cmd.Context(), joinFile(args[0]))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cluster %q is not registered: causeway join list has those that are", args[0])
		}
		if err == nil {
			err = st.deleteValue(cmd.Context(), joinFile(args[0]))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "no more agents of cluster %q can join; those that have joined stay\n", args[0])
		return err
	})
}

// joinRecord is what the state has about a cluster whose agents may join.
type joinRecord struct {
	Cluster  string   `json:"cluster"`
	Issuer   string   `json:"issuer"`
	Audience string   `json:"audience"`
	Subjects []string `json:"subjects"`
	Keys     string   `json:"keys,omitempty"`  // a JWK set or PEM; "": they are fetched
	CA       string   `json:"ca,omitempty"`    // PEM; "": the machine's
	Proxy    string   `json:"proxy,omitempty"` // URL, or direct; "": the server's environment's
}

const joinPrefix = "join-"

func joinFile(cluster string) string { return joinPrefix + hashName(cluster) }

// readJoins returns the records that can be read, and an error about the others. They
// are nil if the state can't be read.
func readJoins(ctx context.Context, st *state) (records []joinRecord, err error) {
	found, err := st.Store.List(ctx, tunnel.KindValue, joinPrefix)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b tunnel.Record) int { return strings.Compare(a.Name, b.Name) })
	records = make([]joinRecord, 0, len(found))
	for _, value := range found {
		var r joinRecord
		if wrong := json.Unmarshal(value.Data, &r); wrong != nil {
			err = errors.Join(err, fmt.Errorf("a registration for join can't be read: %w", wrong))
			continue
		}
		records = append(records, r)
	}
	return records, err
}

// readJoin returns the cluster's record; fs.ErrNotExist if the cluster is not registered.
func readJoin(ctx context.Context, st *state, cluster string) (r joinRecord, err error) {
	text, err := st.read(ctx, joinFile(cluster))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// registration returns what the library takes. Its error names a flag of join add.
func (r joinRecord) registration() (oidc.Registration, error) {
	to := oidc.Registration{Cluster: r.Cluster, Issuer: r.Issuer, Audience: r.Audience, Subjects: r.Subjects}
	if r.Keys != "" {
		to.Keys = []byte(r.Keys)
		return to, nil
	}
	if r.CA != "" {
		to.RootCAs = x509.NewCertPool()
		if !to.RootCAs.AppendCertsFromPEM([]byte(r.CA)) {
			return to, errors.New("--ca has no certificate in PEM")
		}
	}
	d, err := cli.NewDialer(r.Proxy)
	if err != nil {
		return to, fmt.Errorf("--proxy: %w", err)
	}
	to.Dial = d.DialContext
	return to, nil
}

// joinAudience returns the audience of the tokens that agents join with. It names the
// installation: it is random, is made once, and stays when the authority is replaced.
func joinAudience(ctx context.Context, st *state) (string, error) {
	text, err := st.readOrCreate(ctx, audienceFile, func() ([]byte, error) {
		return []byte("causeway:" + strings.ToLower(rand.Text()) + "\n"), nil
	})
	return strings.TrimSpace(string(text)), err
}

// joins keeps a server's registrations as those in the state. One goroutine at a time
// uses it.
type joins struct {
	*program
	issuers oidc.Issuers
	known   map[string]string // the record that counts, by cluster
}

// newJoins has the program's server let in the agents of the clusters in the state.
func newJoins(ctx context.Context, p *program) (*joins, error) {
	j := &joins{program: p}
	j.issuers.Store = p.server.Store
	p.server.Enroller = &j.issuers
	return j, j.follow(ctx)
}

// follow applies what was added to the state, changed or removed. A registration that
// can't be used any more counts no longer.
func (j *joins) follow(ctx context.Context) error {
	records, err := readJoins(ctx, j.state)
	if records == nil {
		return err
	}
	is := map[string]string{}
	for _, r := range records {
		text := fmt.Sprintf("%q", r)
		if is[r.Cluster] = text; j.known[r.Cluster] == text {
			continue
		}
		to, wrong := r.registration()
		if wrong == nil {
			wrong = j.issuers.Register(to)
		}
		if wrong != nil {
			j.issuers.Remove(r.Cluster)
			j.log.Warn("join: agents of the cluster are refused", "cluster", r.Cluster, "error", wrong)
			continue
		}
		j.log.Info("agents of the cluster may join", "cluster", r.Cluster, "issuer", r.Issuer)
	}
	for cluster := range j.known {
		if _, ok := is[cluster]; !ok {
			j.issuers.Remove(cluster)
			j.log.Info("agents of the cluster may not join any more", "cluster", cluster)
		}
	}
	j.known = is
	return err
}
