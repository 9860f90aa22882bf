package server

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/oidc"
)

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

// readJoin returns that of the cluster; fs.ErrNotExist if there is none.
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
