package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/restconfig"
	"github.com/causewayproject/causeway/tunnel"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

// state is what servers and commands share: the authority, and a Store with the rest.
type state struct {
	*tunnel.Records
	dir     string       // "" with Secrets
	secrets *secretState // nil with a directory
}

// secretState is where a state in Secrets is, for any number of servers.
type secretState struct {
	client            kubernetes.Interface
	namespace, prefix string
	authority         tunnelkube.AuthoritySecret
	log               *slog.Logger
}

// The names that have values.
const (
	authorityFile = "authority.pem" // certificates and key; not with Secrets
	serversFile   = "servers"       // the addresses that agents are given, a line each
	ticketKeyFile = "tickets.key"   // what signs tickets
	rotationFile  = "ticket-keys"   // another key that is accepted: there from rotate add to drop
	gatewayFile   = "gateway"       // the URL of the first door for tickets
	audienceFile  = "audience"      // of the tokens that agents join with
)

// newDirState does not look whether the folder exists. every is the time between two looks
// for revocations.
func newDirState(dir string, every time.Duration) *state {
	return &state{Records: &tunnel.Records{Store: tunnel.DirStore{Dir: dir, Interval: every}}, dir: dir}
}

func newSecretState(client kubernetes.Interface, namespace, prefix string, log *slog.Logger) *state {
	warn := func(err error) { log.Warn("state", "error", err) }
	return &state{
		Records: &tunnel.Records{Store: &tunnelkube.SecretStore{Client: client, Namespace: namespace, Prefix: prefix, Error: warn}},
		secrets: &secretState{client: client, namespace: namespace, prefix: prefix, log: log,
			authority: tunnelkube.AuthoritySecret{Client: client, Namespace: namespace, Name: prefix + "-authority", Error: warn}},
	}
}

// openDir makes the folder if it is missing.
func openDir(dir string, every time.Duration) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	st := newDirState(dir, every)
	return st, st.checkModes()
}

// check returns fs.ErrNotExist if no server has created the state yet.
func (s *state) check(ctx context.Context) error {
	if s.secrets != nil {
		_, err := s.secrets.authority.Load(ctx)
		return err
	}
	if _, err := os.Stat(filepath.Join(s.dir, authorityFile)); err != nil {
		return err
	}
	return s.checkModes()
}

// checkModes returns an error if every user of the machine can read the authority's key,
// or put another one in its place. A group may: Kubernetes mounts volumes for one.
func (s *state) checkModes() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm()&0o002 != 0 {
		return cmp.Or(err, errors.New("every user of this machine can write to the folder: set its mode to 700, or name a folder of its own below it"))
	}
	info, err := os.Stat(filepath.Join(s.dir, authorityFile))
	if err == nil && info.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("every user of this machine can read or write %s, the authority's key: set its mode to 600, or replace the authority", authorityFile)
	}
	return nil
}

// server returns a Server with the authority, which it creates if necessary, and the store.
func (s *state) server(ctx context.Context) (*tunnel.Server, error) {
	load := s.loadAuthority
	if s.secrets != nil {
		load = s.secrets.authority.LoadOrCreate
	}
	a, err := load(ctx)
	if err != nil {
		return nil, err
	}
	return &tunnel.Server{Authority: a, Store: s.Store}, nil
}

// loadAuthority reads the authority in the folder.
func (s *state) loadAuthority(ctx context.Context) (*tunnel.Authority, error) {
	text, err := s.readOrCreate(ctx, authorityFile, func() ([]byte, error) {
		a, err := tunnel.NewAuthority()
		if err != nil {
			return nil, err
		}
		certs, key, err := a.PEM()
		return append(certs, key...), err
	})
	if err != nil {
		return nil, err
	}
	a, err := tunnel.ParseAuthority(text, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.dir, authorityFile), err)
	}
	return a, nil
}

// follow keeps memory, revocations and the server's authority up to date until ctx ends.
func (s *state) follow(ctx context.Context, server *tunnel.Server) {
	var following sync.WaitGroup
	begin := func(run func() error) {
		following.Go(func() {
			if err := run(); err != nil && s.secrets != nil {
				s.secrets.log.Warn("state", "error", err)
			}
		})
	}
	begin(func() error { return server.FollowStore(ctx) })
	if s.secrets != nil {
		begin(func() error { return s.secrets.authority.Watch(ctx, server.SetAuthority) })
		begin(func() error { return s.Store.Watch(ctx, tunnel.KindValue, func(tunnel.Record) {}) })
	}
	following.Wait()
}

// read returns the value of a name; fs.ErrNotExist without one.
func (s *state) read(ctx context.Context, name string) ([]byte, error) {
	r, err := s.Store.Get(ctx, tunnel.KindValue, name)
	return r.Data, err
}

// readOrCreate returns the value of a name. If there is none, it stores a new one. If several
// processes do that at once, all get the one that was first.
func (s *state) readOrCreate(ctx context.Context, name string, newValue func() ([]byte, error)) ([]byte, error) {
	data, err := s.read(ctx, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	if data, err = newValue(); err == nil {
		err = s.Store.Create(ctx, valueRecord(name, data))
	}
	if errors.Is(err, fs.ErrExist) {
		return s.read(ctx, name)
	}
	return data, err
}

// putJSON sets the value of a name to a struct, if it is another one.
func (s *state) putJSON(ctx context.Context, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.putChanged(ctx, valueRecord(name, data))
}

// deleteValue removes the value of a name, if there is one.
func (s *state) deleteValue(ctx context.Context, name string) error {
	return s.Store.Delete(ctx, tunnel.Record{Kind: tunnel.KindValue, Name: name})
}

func valueRecord(name string, data []byte) tunnel.Record {
	return tunnel.Record{Kind: tunnel.KindValue, Name: name, Data: data}
}

// setPayload writes what is new. Without data (nil, and not empty) the payload is removed.
func (s *state) setPayload(ctx context.Context, cluster string, p tunnel.Payload) error {
	r := tunnel.Record{Kind: tunnel.KindPayload, Name: cluster + "\n" + p.Name, Cluster: cluster, Data: p.Data}
	if p.Data == nil {
		return s.Store.Delete(ctx, r)
	}
	return s.putChanged(ctx, r)
}

// payloads returns those of a cluster in the order of their names.
func (s *state) payloads(ctx context.Context, cluster string) (list []tunnel.Payload, err error) {
	found, err := s.Store.List(ctx, tunnel.KindPayload, cluster)
	for _, r := range found {
		_, name, _ := strings.Cut(r.Name, "\n")
		list = append(list, tunnel.Payload{Name: name, Data: r.Data})
	}
	slices.SortFunc(list, func(a, b tunnel.Payload) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// hashName makes a name of any text.
func hashName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

type stateFlags struct{ dir, secrets, kubeconfig string }

func addStateFlags(set *pflag.FlagSet) *stateFlags {
	f := new(stateFlags)
	set.StringVar(&f.dir, "state", "/var/lib/tunnel-server", "`directory` of the authority's key, tokens and revocations")
	set.StringVar(&f.secrets, "secrets", "", "`NAMESPACE/PREFIX` of Secrets that have it instead: what several servers share")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that leads to the cluster with the --secrets; default: the pod's own")
	cli.Exclude(set, "secrets", "state")
	cli.Share(set, "state", "secrets", "kubeconfig")
	return f
}

// stateCommand returns a command with run, which works on a state that is there.
func stateCommand(cmd *cobra.Command, run func(cmd *cobra.Command, f *stateFlags, st *state, args []string) error) *cobra.Command {
	f := addStateFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		st, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		return run(cmd, f, st, args)
	}
	return cmd
}

// String names the flag that says where the state is.
func (f *stateFlags) String() string {
	if f.secrets != "" {
		return "--secrets " + f.secrets
	}
	return "--state " + f.dir
}

// open opens the state for a command. Only a server creates one: a name that was
// mistyped must not become another authority.
func (f *stateFlags) open(ctx context.Context) (*state, error) {
	st, err := f.newState(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err = st.check(ctx); err == nil {
		return st, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no server has its state there: %w. Name the server's own --state or --secrets: only the server creates them", err)
	}
	return nil, fmt.Errorf("%s: %w", f, err)
}

// create opens the state for the server, which may be the first one.
func (f *stateFlags) create(log *slog.Logger, every time.Duration) (*state, error) {
	st, err := f.newState(log)
	if f.secrets == "" {
		if st, err = openDir(f.dir, every); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	return st, err
}

// newState does not look whether the state exists.
func (f *stateFlags) newState(log *slog.Logger) (*state, error) {
	if f.secrets == "" {
		return newDirState(f.dir, 0), nil
	}
	namespace, prefix, ok := strings.Cut(f.secrets, "/")
	if wrong := validation.IsDNS1123Label(prefix); !ok || namespace == "" || len(wrong) > 0 {
		return nil, cli.Mistake("--secrets %q is not NAMESPACE/PREFIX", f.secrets)
	}
	client, err := f.client()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return newSecretState(client, namespace, prefix, log), nil
}

func (f *stateFlags) client() (kubernetes.Interface, error) {
	config, err := restconfig.Load(f.kubeconfig)
	if err != nil {
		return nil, err
	}
	rest.AddUserAgent(config, "tunnel-server")
	config.QPS, config.Burst = 100, 200 // agents enrol in crowds
	return kubernetes.NewForConfig(config)
}

// checkServers returns an error if agents or replicas could not dial an address. It
// does not show the address: a URL may hold a secret.
func checkServers(what string, addresses []string) error {
	for i, address := range addresses {
		if err := tunnel.CheckAddress(address); err != nil {
			place := fmt.Sprintf("%s: address %d", what, i+1)
			return cli.FieldMistake(err, "tunnel: config: the server's address:", place+":", "tunnel: config", place)
		}
	}
	return nil
}

// putChanged does not write what is there already: a full disk is no reason not to start.
func (s *state) putChanged(ctx context.Context, r tunnel.Record) error {
	if old, err := s.Store.Get(ctx, r.Kind, r.Name); err == nil && bytes.Equal(old.Data, r.Data) {
		return nil
	}
	return s.Put(ctx, r)
}

// noteCluster records that an agent of the cluster was invited, and when the cluster began:
// tickets of before are those of a former one of the name. That is when the former one ended;
// if that is forgotten, it was days ago.
func noteCluster(ctx context.Context, st *state, cluster string) error {
	_, err := st.readOrCreate(ctx, clusterFile(cluster), func() ([]byte, error) {
		began, err := st.Revoked(ctx, tunnel.Identity{Cluster: cluster})
		if yesterday := time.Now().Add(-24 * time.Hour); began.Before(yesterday) { // clocks differ
			began = yesterday
		}
		return fmt.Appendf(nil, "%s\n%s\n", cluster, began.UTC().Format(time.RFC3339Nano)), err
	})
	return err
}

// clusterBegan returns what noteCluster has recorded; zero if nothing, or by an earlier version.
func clusterBegan(ctx context.Context, st *state, cluster string) (time.Time, error) {
	text, err := st.read(ctx, clusterFile(cluster))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	_, began, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if err != nil || began == "" {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339, began)
}

// warnUnknown writes a warning if there is no record that an agent of the cluster was
// invited, or that this agent has enrolled, if agent is not "". It is no error: a state of an earlier version, or a partial copy of one, has
// no such record of a cluster whose agents are connected.
func warnUnknown(ctx context.Context, st *state, cluster, agent string, stderr io.Writer) {
	if _, err := readJoin(ctx, st, cluster); err == nil {
		return // its agents need no invitation
	}
	switch _, err := st.read(ctx, clusterFile(cluster)); {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(stderr, "warning: this state has no record of an invitation of cluster %q: check the name; the server's page and log have the names\n", cluster)
	case err != nil:
		fmt.Fprintf(stderr, "warning: it can't be checked that an agent of cluster %q was invited: %v\n", cluster, err)
	case agent != "" && !hasEnrolled(ctx, st, cluster, agent):
		fmt.Fprintf(stderr, "warning: this state has no record of agent %q of cluster %q: check the name; the server's page and log have the names. A record is kept until a week after the invitation's end\n", agent, cluster)
	}
}

// hasEnrolled reports whether a token that is there still says so. An agent's name is the
// beginning of its key's fingerprint: SPEC.md section 6.
func hasEnrolled(ctx context.Context, st *state, cluster, agent string) bool {
	tokens, _ := st.Tokens(ctx, cluster)
	return slices.ContainsFunc(tokens, func(t tunnel.Token) bool {
		return slices.ContainsFunc(t.Keys, func(key string) bool {
			sum, _ := hex.DecodeString(key)
			return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:min(len(sum), 10)])) == agent
		})
	})
}

func clusterFile(cluster string) string { return "cluster-" + hashName(cluster) }

// advertisedServers returns the addresses of --advertise, or nil.
func advertisedServers(ctx context.Context, st *state) ([]string, error) {
	text, err := st.read(ctx, serversFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// saveGateway saves the URL of the door for tickets, if its address has a host and a
// port.
func saveGateway(ctx context.Context, st *state, f *doorFlags) error {
	scheme, address := "http://", f.connect
	if f.connect == "" {
		scheme, address = "https://", f.connectTLS
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "0" {
		return nil // nobody can dial it
	}
	return st.putChanged(ctx, valueRecord(gatewayFile, []byte(scheme+address)))
}
