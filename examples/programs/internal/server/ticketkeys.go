package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

const (
	// ticketKeySize is the size of each key in ticketKeyFile. The first one signs, the
	// others did before a --revoke-all or a rotate drop: clients can be told what happened.
	ticketKeySize = 32
	revokedKeys   = 4

	// usePrefix begins the names of the clients that use a former key.
	usePrefix = "ticket-former-use-"
)

// ticketKeys are the keys of tickets.
type ticketKeys struct {
	signs   []byte
	revoked [][]byte
	next    []byte    // is accepted between add and switch
	former  []byte    // is accepted between switch and drop
	step    time.Time // when add or switch was
}

// ticketRotation is the value of rotationFile. Which of both keys signs is in ticketKeyFile, so
// that a switch is one write.
type ticketRotation struct {
	Next   []byte    `json:"next"`
	Former []byte    `json:"former"`
	Step   time.Time `json:"step"`
}

func newTicketKey() []byte {
	key := make([]byte, ticketKeySize)
	rand.Read(key)
	return key
}

// readTicketKeys reads the keys, and creates the first. rotationFile counts only if one of its two
// keys signs: else it is left from a rotation that was ended.
func readTicketKeys(ctx context.Context, st *state) (k ticketKeys, err error) {
	keys, err := st.readOrCreate(ctx, ticketKeyFile, func() ([]byte, error) { return newTicketKey(), nil })
	if err != nil {
		return k, err
	}
	k.signs = keys[:min(len(keys), ticketKeySize)]
	k.revoked = slices.Collect(slices.Chunk(keys[len(k.signs):], ticketKeySize))
	text, err := st.read(ctx, rotationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	var r ticketRotation
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return k, fmt.Errorf("%s: %w", rotationFile, err)
	}
	switch {
	case bytes.Equal(k.signs, r.Former):
		k.next, k.step = r.Next, r.Step
	case bytes.Equal(k.signs, r.Next):
		k.former, k.step = r.Former, r.Step
	}
	return k, nil
}

// replaceTicketKey has a key sign, and those before it, the newest first, be revoked.
func replaceTicketKey(ctx context.Context, st *state, signs []byte, revoked ...[]byte) error {
	return st.Put(ctx, valueRecord(ticketKeyFile, slices.Concat(signs, slices.Concat(revoked[:min(len(revoked), revokedKeys)]...))))
}

// revokeTickets replaces all keys.
func revokeTickets(ctx context.Context, st *state) error {
	k, err := readTicketKeys(ctx, st)
	if err == nil {
		err = endRotation(ctx, st)
	}
	if err != nil {
		return err
	}
	return replaceTicketKey(ctx, st, newTicketKey(), append([][]byte{k.signs, k.former}, k.revoked...)...)
}

// rotateTickets takes one step of a rollover of the tickets' key. Nobody loses access before
// drop, and until then it prints who would.
func rotateTickets(ctx context.Context, st *state, step string, force bool, stdout io.Writer) error {
	k, err := readTicketKeys(ctx, st)
	if err == nil {
		err = checkOrder(step, "key of tickets", k.next != nil, k.former != nil, force)
	}
	if err != nil {
		return err
	}
	now, said := time.Now().UTC(), ""
	switch ago := now.Sub(k.step).Round(time.Second); {
	case step == "add":
		said = "a new key is accepted, and does not sign yet: switch comes next"
		err = st.putJSON(ctx, rotationFile, ticketRotation{newTicketKey(), k.signs, now})
	case step == "switch" && !force && ago < addedTime:
		return fmt.Errorf("the new key was added %v ago: servers that have not read it since would refuse new tickets. Wait until %v have passed; --force switches now", ago, addedTime)
	case step == "switch":
		said = "the new key signs, and the former one is accepted until drop"
		if err = st.putJSON(ctx, rotationFile, ticketRotation{k.next, k.signs, now}); err == nil {
			err = replaceTicketKey(ctx, st, k.next, k.revoked...)
		}
	case k.former == nil:
		said = "the new key, which did not sign yet, is removed"
		err = st.deleteValue(ctx, rotationFile)
	default:
		said = "tickets of the former key are refused"
		err = dropTicketKey(ctx, st, k, now, force, stdout)
	}
	if err == nil {
		_, err = fmt.Fprintln(stdout, said)
	}
	return err
}

// dropTicketKey ends the tickets of the former key, unless somebody has used one lately. It
// prints who has.
func dropTicketKey(ctx context.Context, st *state, k ticketKeys, now time.Time, force bool, stdout io.Writer) error {
	found, err := st.Store.List(ctx, tunnel.KindValue, usePrefix)
	last, list := k.step, []string{}
	for _, r := range found {
		u := formerUse{Client: r.Name} // if the record is damaged
		_ = json.Unmarshal(r.Data, &u)
		if u.Last.After(last) {
			last = u.Last
		}
		list = append(list, fmt.Sprintf("%s  %q of %s\n", u.Last.UTC().Format(time.RFC3339), u.Client, u.Cluster))
	}
	slices.Sort(list)
	if err == nil {
		_, err = io.WriteString(stdout, strings.Join(list, ""))
	}
	if until := last.Add(certificateTime); err == nil && !force && now.Before(until) {
		err = fmt.Errorf("%d clients have used the former key since the switch at %s: they need new tickets, and a program that keeps a kubeconfig in memory a restart. Wait until it was not used for 7 days, %s at the earliest; --force drops now",
			len(list), k.step.Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	}
	if err == nil {
		err = replaceTicketKey(ctx, st, k.signs, append([][]byte{k.former}, k.revoked...)...)
	}
	if err != nil {
		return err
	}
	return endRotation(ctx, st)
}

// endRotation forgets the other key, and who has used it.
func endRotation(ctx context.Context, st *state) error {
	found, err := st.Store.List(ctx, tunnel.KindValue, usePrefix)
	for _, r := range found {
		err = errors.Join(err, st.deleteValue(ctx, r.Name))
	}
	return errors.Join(err, st.deleteValue(ctx, rotationFile))
}

// formerUse says that a client has a ticket of the former key: the value of a name with usePrefix.
type formerUse struct {
	Client  string    `json:"client"`
	Cluster string    `json:"cluster"`
	Last    time.Time `json:"last"` // to the hour, so that it is written seldom
}

// noteUse notes a use until saveUses: no client waits for the store. There are no more than
// tickets were made, since the name in a ticket is signed.
func (t *tickets) noteUse(id gateway.Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == nil {
		t.used = map[gateway.Identity]time.Time{}
	}
	t.used[id] = time.Now().UTC().Truncate(time.Hour)
}

// saveUses saves the uses since the last call, for all servers and for rotate drop. A use that can't
// be saved is noted again when the client comes again.
func (t *tickets) saveUses(ctx context.Context, st *state) (err error) {
	t.mu.Lock()
	used := t.used
	t.used = nil
	t.mu.Unlock()
	for id, last := range used {
		err = errors.Join(err, st.putJSON(ctx, usePrefix+ticketID(gateway.Ticket{Identity: id}), formerUse{id.Name, id.Cluster, last}))
	}
	return err
}
