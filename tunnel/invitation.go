package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/envfile"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Invitation is what an agent needs to enrol. An agent that does not enrol uses one
// without the token, to verify the server. The token is a secret: only
// [Invitation.Reveal] returns it, and neither fmt nor an encoding prints it.
type Invitation struct {
	// Servers are the server's addresses, as Agent takes them: host:port or a
	// ws or wss URL. May be empty if the agent's field Servers is set.
	Servers []string
	// Cluster is the cluster that the agent is to serve. If empty, it is the token's;
	// otherwise a token of another cluster is refused.
	Cluster string
	// Token is the secret, signed by the server's authority. It begins with
	// "causeway1." and has some 150 characters, more with an authority of RSA:
	// SPEC.md has the form and the sizes. A JSON Web Token of at most 8 KiB is one for the
	// Server's Enroller. Required to enrol.
	Token string
	// Pin is the [Pin] of the server's authority. Required.
	Pin string
	// Expires is when the token ends, by the server's clock, for people to read. If
	// zero, it is not known.
	Expires time.Time
	// Agents is how many more agents may enrol with the token, for people to read. Zero
	// if it is not known: the text form does not have it.
	Agents int
}

// The variables of an invitation's text form.
const (
	envServers = "CAUSEWAY_SERVERS"
	envCluster = "CAUSEWAY_CLUSTER"
	envToken   = "CAUSEWAY_TOKEN"
	envPin     = "CAUSEWAY_PIN"
	envExpires = "CAUSEWAY_EXPIRES"

	maxInvitation = 64 << 10
)

// Reveal returns the text form with the token: an environment file, which a shell,
// systemd and kubectl create secret --from-env-file read in the same way:
//
//	CAUSEWAY_SERVERS=tunnel.example.com:443,wss://tunnel.example.net/agent
//	CAUSEWAY_CLUSTER=namespace/name
//	CAUSEWAY_TOKEN=causeway1...
//	CAUSEWAY_PIN=sha256:...
//	CAUSEWAY_EXPIRES=2026-01-02T15:04:05Z
//
// Characters that are syntax to one of these are percent-encoded. Empty fields are
// left out.
func (i Invitation) Reveal() string {
	var b strings.Builder
	line := func(name string, values ...string) {
		for n, v := range values {
			values[n] = escapeEnv(v)
		}
		if text := strings.Join(values, ","); text != "" {
			b.WriteString(name + "=" + text + "\n")
		}
	}
	line(envServers, append([]string(nil), i.Servers...)...)
	line(envCluster, i.Cluster)
	line(envToken, i.Token)
	line(envPin, i.Pin)
	if !i.Expires.IsZero() {
		line(envExpires, formatTime(i.Expires))
	}
	return b.String()
}

// ParseInvitation reads the text form. It allows blank lines, comments (#), "export"
// a byte order mark, and quotes around a value, and ignores other variables. The error is an [*Error]
// with CodeConfig; it quotes no value.
func ParseInvitation(text string) (Invitation, error) {
	var i Invitation
	seen := map[string]bool{}
	err := envfile.Read(text, func(name, value string) error {
		if seen[name] && strings.HasPrefix(name, "CAUSEWAY_") {
			return errors.New("a variable for the second time")
		}
		seen[name] = true
		return i.setVariable(name, value)
	})
	if err != nil {
		return Invitation{}, configError("invitation: %w", err)
	}
	if err := i.check(); err != nil {
		return Invitation{}, err
	}
	return i, nil
}

// ReadInvitation reads the text form from a file. The error is an [*Error]
// with CodeConfig; if the file does not exist, it is fs.ErrNotExist too.
func ReadInvitation(path string) (Invitation, error) {
	f, err := os.Open(path)
	if err != nil {
		return Invitation{}, configError("invitation: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxInvitation+1))
	if err != nil {
		return Invitation{}, configError("invitation: %w", err)
	}
	if len(text) > maxInvitation {
		return Invitation{}, configError("invitation: %s is longer than %d bytes", path, maxInvitation)
	}
	i, err := ParseInvitation(string(text))
	if err != nil {
		return Invitation{}, fmt.Errorf("%w (in %s)", err, path)
	}
	return i, nil
}

func (i *Invitation) setVariable(name, value string) (err error) {
	switch name {
	case envServers:
		if strings.Contains(value, " ") {
			return errors.New(envServers + " has a space: want one variable a line")
		}
		for s := range strings.SplitSeq(value, ",") {
			if s, err = unescapeEnv(s); err == nil {
				err = CheckAddress(s)
			}
			if err != nil {
				return fmt.Errorf("an address of %s is empty or wrong: %w", envServers, err)
			}
			i.Servers = append(i.Servers, s)
		}
	case envCluster:
		i.Cluster, err = unescapeEnv(value)
	case envToken:
		i.Token = value
	case envPin:
		i.Pin = value
	case envExpires:
		at, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return errors.New(envExpires + " is not a time as of RFC 3339")
		}
		i.Expires = at.UTC().Truncate(time.Second)
	}
	return err
}

// check returns a config error that names the field, and no value.
func (i Invitation) check() error {
	if i.Token == "" {
		return configError("invitation: field Token (%s) is missing", envToken)
	}
	if err := wire.CheckToken(i.Token); err != nil {
		return configError("invitation: field Token (%s): %w", envToken, err)
	}
	if err := checkPin(i.Pin); err != nil {
		return configError("invitation: field Pin (%s): %w", envPin, err)
	}
	if err := wire.CheckCluster(i.Cluster); err != nil && i.Cluster != "" {
		return configError("invitation: field Cluster (%s): %w", envCluster, err)
	}
	return nil
}

// String returns the invitation without the token.
func (i Invitation) String() string {
	token := ""
	if i.Token != "" {
		token = "(redacted)"
	}
	return fmt.Sprintf("tunnel.Invitation{Servers: %d, Cluster: %q, Token: %s, Pin: %q, Expires: %s}",
		len(i.Servers), i.Cluster, token, i.Pin, formatTime(i.Expires))
}

// Format writes String, whatever the verb.
func (i Invitation) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, i.String()) }

// MarshalText returns String: JSON and logs hold no token.
func (i Invitation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

const plainEnv = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:@+[]"

// escapeEnv encodes all characters that may be syntax somewhere.
func escapeEnv(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte(plainEnv, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescapeEnv does not return the cause, which quotes the value.
func unescapeEnv(s string) (string, error) {
	s, err := url.PathUnescape(s)
	if err != nil {
		return "", errors.New("a value has a % without two hex digits")
	}
	return s, nil
}

// maxInvited is how many agents one invitation may be for.
const maxInvited = 1000

// Invite returns what one agent needs to enrol for the cluster, here or at any
// replica that has the same Store and trusts the Authority. The token can be used by
// one agent, until life (zero: 1 hour) has passed. The caller fills in Servers.
func (s *Server) Invite(ctx context.Context, cluster string, life time.Duration) (Invitation, error) {
	return s.InviteAgents(ctx, cluster, 1, life)
}

// InviteAgents is [Server.Invite] for several agents, from 1 to 1,000. Each has a key of
// its own and gets an identity of its own. Agents that share their credentials, such as
// the pods of one Deployment, count as one.
func (s *Server) InviteAgents(ctx context.Context, cluster string, agents int, life time.Duration) (Invitation, error) {
	if err := s.setup(); err != nil {
		return Invitation{}, err
	}
	return s.registrar.invite(ctx, cluster, agents, life)
}

// Invitations returns the cluster's invitations that can still be used, the oldest
// first: those that have not ended, that are for more agents than have enrolled by them,
// and that were made after the last [Server.RevokeCluster]. Their Agents is how many
// agents are left. The Store keeps no secret: the tokens are signed again, and so differ
// from those that were given out before. Both count as one. The caller fills in Servers.
func (s *Server) Invitations(ctx context.Context, cluster string) ([]Invitation, error) {
	if err := s.setup(); err != nil {
		return nil, err
	}
	return s.registrar.openInvitations(ctx, cluster)
}

// invite makes a token for agents of the cluster. If life is zero, the token expires
// in an hour.
func (r *registrar) invite(ctx context.Context, cluster string, agents int, life time.Duration) (Invitation, error) {
	switch err := wire.CheckCluster(cluster); {
	case err != nil:
		return Invitation{}, configError("cluster: %w", err)
	case agents < 1 || agents > maxInvited:
		return Invitation{}, configError("an invitation is for 1 to %d agents, not %d", maxInvited, agents)
	case life < 0:
		return Invitation{}, configError("the life of a token is negative")
	case life == 0:
		life = defaultInvite
	}
	after, err := r.records.Revoked(ctx, Identity{Cluster: cluster})
	if err != nil {
		return Invitation{}, internalError("enroll", cluster, err)
	}
	now := r.clock().UTC()
	t := Token{
		ID: wire.NewTokenID(), Cluster: cluster, Agents: agents, After: after,
		Created: now, Expires: now.Add(life).Truncate(time.Millisecond), // as in the text
	}
	inv, err := r.signInvitation(t)
	if err != nil {
		return Invitation{}, err
	}
	if err := r.records.AddToken(ctx, t); err != nil {
		return Invitation{}, internalError("enroll", cluster, err)
	}
	return inv, nil
}

// signInvitation returns the invitation that has the token.
func (r *registrar) signInvitation(t Token) (Invitation, error) {
	a := r.authority()
	err := a.check()
	var text string
	if err == nil {
		text, err = wire.SignToken(a.Key, a.Certificate, t.ID, t.Cluster, t.Expires)
	}
	if err != nil {
		return Invitation{}, internalError("enroll", t.Cluster, err)
	}
	return Invitation{Cluster: t.Cluster, Token: text, Pin: a.Pin(), Expires: t.Expires, Agents: t.agentsLeft()}, nil
}

func (r *registrar) openInvitations(ctx context.Context, cluster string) (open []Invitation, err error) {
	if err := wire.CheckCluster(cluster); err != nil {
		return nil, configError("cluster: %w", err)
	}
	revoked, err := r.records.Revoked(ctx, Identity{Cluster: cluster})
	if err != nil {
		return nil, internalError("enroll", cluster, err)
	}
	tokens, err := r.records.Tokens(ctx, cluster)
	if err != nil {
		return nil, internalError("enroll", cluster, err)
	}
	now := r.clock()
	tokens = slices.DeleteFunc(tokens, func(t Token) bool {
		return t.Cluster != cluster || !now.Before(t.Expires) || t.agentsLeft() == 0 || t.After.Before(revoked)
	})
	slices.SortFunc(tokens, func(a, b Token) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	for _, t := range tokens {
		inv, err := r.signInvitation(t)
		if err != nil {
			return nil, err
		}
		open = append(open, inv)
	}
	return open, nil
}
