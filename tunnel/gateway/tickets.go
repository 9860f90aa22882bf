package gateway

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Tickets issues and authenticates passwords that expire, such as those for the
// proxy-url of a kubeconfig. A password is a signature (HMAC-SHA256) over the client
// and the expiry, so no ticket is stored: replicas with the same key accept each
// other's tickets, and a restart with the same key loses none. The zero Tickets has a
// random key of its own. Its methods are safe for concurrent use.
//
// A ticket is checked when a connection begins. Connections that are open when it
// expires stay open.
type Tickets struct {
	// Revoked, if not nil, reports whether a ticket was revoked, by a list that
	// replicas may share, for example. Set it before the first call.
	Revoked func(Ticket) bool

	mu   sync.Mutex // guards keys
	keys [][]byte   // the first one signs
}

// Ticket is the content of a password of Tickets.
type Ticket struct {
	Identity Identity
	Issued   time.Time
	Expires  time.Time
}

// TicketError is the error of [Tickets.Authenticate] for a genuine ticket that has
// expired or was revoked. It is an [ErrCredentials], and the only one whose text the
// client sees: as it is over HTTP, and as status 2 (expired) or 3 (revoked) instead
// of 1 over SOCKS5. A client without a genuine ticket does not learn why.
type TicketError struct {
	Ticket  Ticket
	Revoked bool // otherwise it has expired
	// Hint tells the client how to get a new ticket. Tickets leaves it empty: a
	// function around its Authenticate may set it.
	Hint string
}

// Error returns "the ticket ended at 2006-01-02 15:04:05 UTC; hint".
func (e *TicketError) Error() string {
	text := "the ticket was revoked"
	if !e.Revoked {
		text = "the ticket ended at " + e.Ticket.Expires.UTC().Format("2006-01-02 15:04:05 MST")
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Unwrap returns ErrCredentials.
func (e *TicketError) Unwrap() error { return ErrCredentials }

const (
	ticketVersion = 1
	minKey        = 32
	// A password of SOCKS5 has 255 bytes at most (RFC 1929), and so has a user.
	maxSOCKS5 = 255
)

// SetKeys replaces the keys, which have 32 bytes or more each. The first one signs;
// all are accepted. To rotate, first append the new key, then move it to the front,
// then remove the old one.
func (t *Tickets) SetKeys(keys ...[]byte) error {
	if len(keys) == 0 {
		return errors.New("gateway: tickets need a key")
	}
	all := make([][]byte, 0, len(keys))
	for _, k := range keys {
		if len(k) < minKey {
			return fmt.Errorf("gateway: a key of tickets has %d bytes, want %d or more", len(k), minKey)
		}
		all = append(all, bytes.Clone(k))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = all
	return nil
}

// Issue returns a user name, which is the Identity's Name, and a password that
// expires after life. The error says what is wrong with the Identity: a name is
// required, without a colon or a control character, and user name and password must
// fit into the 255 bytes of SOCKS5.
func (t *Tickets) Issue(id Identity, life time.Duration) (user, password string, err error) {
	switch {
	case id.Name == "" || len(id.Name) > maxSOCKS5 || strings.ContainsFunc(id.Name, func(r rune) bool { return r < ' ' || r == ':' || r == 0x7f }):
		return "", "", fmt.Errorf("gateway: %.100q can't be the user name of a ticket", id.Name)
	case life <= 0:
		return "", "", errors.New("gateway: a ticket needs a life")
	}
	now := time.Now()
	b := []byte{ticketVersion}
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixNano()))
	b = binary.BigEndian.AppendUint64(b, uint64(now.Add(life).UnixNano()))
	b = append(b, id.Cluster...)
	b = append(b, signTicket(t.allKeys()[0], id.Name, b)...)
	password = base64.RawURLEncoding.EncodeToString(b)
	if len(password) > maxSOCKS5 {
		return "", "", fmt.Errorf("gateway: cluster %.100q is too long for a ticket", id.Cluster)
	}
	return id.Name, password, nil
}

// Authenticate serves as Gateway.Authenticate. The error is a
// [*TicketError] if the ticket is genuine.
func (t *Tickets) Authenticate(_ context.Context, c Credentials) (Identity, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(c.Password)
	const header = 1 + 8 + 8
	if err != nil || len(b) < header+sha256.Size || b[0] != ticketVersion || c.User == "" {
		return Identity{}, ErrCredentials
	}
	signed, mac := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	valid := false
	for _, key := range t.allKeys() {
		valid = hmac.Equal(mac, signTicket(key, c.User, signed)) || valid
	}
	ticket := Ticket{
		Identity: Identity{Name: c.User, Cluster: string(signed[header:])},
		Issued:   time.Unix(0, int64(binary.BigEndian.Uint64(signed[1:]))),
		Expires:  time.Unix(0, int64(binary.BigEndian.Uint64(signed[9:]))),
	}
	switch {
	case !valid: // first, so that a stranger learns nothing
		return Identity{}, ErrCredentials
	case !time.Now().Before(ticket.Expires):
		return Identity{}, &TicketError{Ticket: ticket}
	case t.Revoked != nil && t.Revoked(ticket):
		return Identity{}, &TicketError{Ticket: ticket, Revoked: true}
	}
	return ticket.Identity, nil
}

func (t *Tickets) allKeys() [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys == nil {
		key := make([]byte, minKey)
		rand.Read(key)
		t.keys = [][]byte{key}
	}
	return t.keys
}

// signTicket signs a user name and the content of a password. The length of the user
// name keeps the two apart.
func signTicket(key []byte, user string, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("causeway gateway ticket"))
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(user))))
	h.Write([]byte(user))
	h.Write(b)
	return h.Sum(nil)
}
