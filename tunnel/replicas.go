package tunnel

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Membership says where the replicas of a Server are. In Kubernetes these are the
// endpoints of its Service.
type Membership interface {
	// Watch calls set with the addresses of all replicas and their zones, at once and
	// after each change, until ctx ends. The keys are the addresses, the values their
	// zones, such as a cloud's; empty for an unknown one. Addresses are host:port, or ws
	// or wss URLs, as [CheckAddress] says. The replica's own may be among them; it is
	// recognized. Set does not block, does not keep the map, and replaces all former
	// addresses.
	//
	// Until the first call of set, even one without addresses, dials that find no
	// agent wait for it, up to 5 seconds. If Watch returns before ctx has ended, it
	// is called again a little later. Until then the addresses stay, and the text of
	// its error is in the errors of dials that find no agent.
	//
	// If all zones are known,
	//
	//   - the two sessions of an agent are in two zones, if it reaches replicas of two
	//     zones within some tries;
	//   - a dial that is forwarded goes to a replica in the own zone, unless another one
	//     answers first;
	//   - a zone with more than half of the replicas has only half of the sessions; but
	//     no replica has more than twice the average for that.
	//
	// A replica takes its own zone from the address that leads to itself.
	Watch(ctx context.Context, set func(zones map[string]string)) error
}

// StaticPeers is a fixed Membership. Each entry is host:port, or a ws or wss URL.
// Of host:port, each address of the host is a replica, as with a headless Service;
// the host is looked up every 10 seconds. A host that can't be looked up is used as
// it is. StaticPeers is safe for concurrent use.
type StaticPeers []string

var _ Membership = StaticPeers(nil)

// resolveEvery is shorter than the time for which resolvers cache names of pods.
const resolveEvery = 10 * time.Second

// Watch returns when ctx ends.
func (p StaticPeers) Watch(ctx context.Context, set func(zones map[string]string)) error {
	return p.watchWith(ctx, set, net.DefaultResolver.LookupHost)
}

type lookupFunc func(ctx context.Context, host string) ([]string, error)

func (p StaticPeers) watchWith(ctx context.Context, set func(map[string]string), lookup lookupFunc) error {
	known := map[string][]string{} // by entry
	var last map[string]string     // nil: set was not called yet
	for ctx.Err() == nil {
		all := map[string]string{} // no zone is known
		for _, entry := range p {
			for _, address := range resolvePeers(ctx, entry, known, lookup) {
				all[address] = ""
			}
		}
		if ctx.Err() == nil && (last == nil || !maps.Equal(all, last)) {
			set(all)
			last = all
		}
		backoff.Sleep(ctx, resolveEvery)
	}
	return ctx.Err()
}

// resolvePeers returns the addresses of one entry. If its name can't be looked up,
// they are the former ones, or the name itself: the dial's error then says why.
func resolvePeers(ctx context.Context, entry string, known map[string][]string, lookup lookupFunc) []string {
	host, port, err := net.SplitHostPort(entry)
	if _, addrErr := netip.ParseAddr(host); strings.Contains(entry, "://") || err != nil || addrErr == nil {
		return []string{entry}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveEvery)
	defer cancel()
	hosts, err := lookup(ctx, host)
	if err == nil && len(hosts) > 0 {
		known[entry] = nil
		for _, h := range hosts {
			known[entry] = append(known[entry], net.JoinHostPort(h, port))
		}
	}
	if known[entry] == nil {
		return []string{entry}
	}
	return known[entry]
}

const (
	// fleetTimeout is how long a replica has to say what it knows.
	fleetTimeout = 5 * time.Second
	// fleetPiece is how much of an answer goes into a message, and maxFleet the limit
	// of an answer: some 40,000 sessions.
	fleetPiece = 512 << 10
	maxFleet   = 24 << 20
	// minObject is how long the objects of an answer are at least, on average: in memory one
	// of two bytes would have hundreds.
	minObject = 40
)

// ReplicaStatus is the state of one replica at one moment.
type ReplicaStatus struct {
	// Name is the replica's; empty if it was never connected.
	Name string `json:"name"`
	// Self: it is the replica whose Fleet was called.
	Self bool `json:"self"`
	// Address is the one that Peers gives, without the password of a URL; empty for
	// Self.
	Address string `json:"address"`
	// Zone is where it is; empty if Peers does not know: see [Membership].
	Zone string `json:"zone,omitempty"`
	// Connected: there is a session that forwards dials to it.
	Connected bool `json:"connected"`
	// Draining: it takes no new streams.
	Draining bool `json:"draining"`
	// Since is when the session began; of Self, when the replica did. Zero if there
	// is no session.
	Since time.Time `json:"since"`
	// LastError says why there is no session, or no Status. Of Self it is the error
	// of Peers.
	LastError string `json:"lastError,omitempty"`
	// Status is the replica's own; zero if the replica did not answer.
	Status Status `json:"status"`
}

// Fleet returns the status of this replica, then that of each other address of
// Peers, sorted by name and address. All replicas are asked at once, for as long as
// ctx allows, and 5 seconds at most. Several addresses of one replica are one row.
func (s *Server) Fleet(ctx context.Context) []ReplicaStatus {
	if s.setup() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fleetTimeout)
	defer cancel()
	all := s.peers.statusRows()
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i].askStatus(ctx) })
	}
	wg.Wait()
	fleet := []ReplicaStatus{s.selfStatus()}
	for _, r := range all {
		fleet = append(fleet, r.ReplicaStatus)
	}
	return fleet
}

func (s *Server) selfStatus() ReplicaStatus {
	r := ReplicaStatus{Name: s.name, Self: true, Connected: true, Since: s.began, Status: s.Status(), Draining: s.peers.isDraining(), Zone: s.peers.ownZone()}
	if err := s.peers.memberError(); err != nil {
		r.LastError = causeText(err)
	}
	return r
}

// peerStatus is a row of Fleet, and the session by which the rest is asked for.
type peerStatus struct {
	ReplicaStatus
	err  error         // LastError
	link *outboundPeer // nil without a session
}

// statusRows returns what is known without asking.
func (p *peers) statusRows() []peerStatus {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.byAddr))
	p.mu.Unlock()
	var rows []peerStatus
	for _, peer := range all {
		if row, ok := peer.statusRow(); ok {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b peerStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), trueFirst(a.Connected, b.Connected), cmp.Compare(a.Address, b.Address))
	})
	return slices.CompactFunc(rows, func(a, b peerStatus) bool { return a.Name != "" && a.Name == b.Name })
}

// trueFirst compares for a sort that has true before false.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// statusRow reports ok if the address is not this replica's own.
func (p *peer) statusRow() (row peerStatus, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	row.Name, row.Address, row.Zone, row.Draining = p.name, p.address, p.zone, p.draining
	if row.err = p.err; p.err != nil {
		row.LastError = causeText(p.err)
	}
	if l := p.link; l != nil && !l.Closed() {
		row.link, row.Connected, row.Since = l, l.TakesStreams(), l.Since
	}
	return row, !p.self
}

func (r *peerStatus) askStatus(ctx context.Context) {
	r.Status.Clusters = []ClusterStatus{}
	if r.link == nil {
		return
	}
	status, err := r.link.requestStatus(ctx)
	if err != nil {
		r.LastError = causeText(err)
		return
	}
	r.Status = *status
}

// requestStatus asks the replica for its Status.
func (l *outboundPeer) requestStatus(ctx context.Context) (*Status, error) {
	var text []byte
	err := l.requestAll(ctx, wire.New(wire.MsgFleet), nil, func(stream *mux.Stream) error {
		m, err := readKind(stream, wire.MsgFleet, wire.MaxBody)
		if err == nil && len(text) > maxFleet {
			err = wire.ErrMalformed
		}
		if err == nil {
			text = append(text, m.Bytes(wire.TagData)...)
			stream.Keep(len(text))
		} else {
			stream.Keep(0)
		}
		return err
	})
	var status *Status
	if err == nil {
		status, err = parseStatus(text)
	}
	if err != nil {
		return nil, l.requestError("status", err)
	}
	return status, nil
}

// parseStatus reads what another replica says. In memory it must not be many times as large.
func parseStatus(text []byte) (*Status, error) {
	if countObjects(text) > len(text)/minObject+1 {
		return nil, wire.ErrMalformed
	}
	var status Status
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	cleanTexts(reflect.ValueOf(&status).Elem())
	return &status, nil
}

// countObjects returns how many objects and elements null the JSON text has.
func countObjects(text []byte) (n int) {
	inString, before := false, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
			before = c
		case inString, c <= ' ':
		default:
			if c == '{' || c == 'n' && before != ':' {
				n++
			}
			before = c
		}
	}
	return n
}

// cleanTexts makes all texts in v printable: a replica of an older version passes on what
// its agents said.
func cleanTexts(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(printable.Text(v.String(), 1<<10))
	case reflect.Pointer:
		if !v.IsNil() {
			cleanTexts(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			cleanTexts(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				cleanTexts(v.Field(i))
			}
		}
	}
}

// requestAll sends a request, and more unless that is nil, on a stream of its own. It calls
// take for each answer, until take returns io.EOF: that is their end.
func (l *outboundPeer) requestAll(ctx context.Context, request, more *wire.Message, take func(*mux.Stream) error) error {
	l.countStream()
	stream, err := l.Open(ctx, request.Encode())
	if err != nil {
		return err
	}
	defer stream.Reset(0)
	stop := context.AfterFunc(ctx, func() { stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if more != nil {
		err = wire.Write(stream, more)
	}
	for err == nil {
		err = take(stream)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// readKind reads a message of this kind.
func readKind(stream *mux.Stream, kind wire.Kind, most int) (*wire.Message, error) {
	m, err := wire.Read(stream, most)
	if err == nil && m.Kind != kind {
		err = wire.ErrMalformed
	}
	return m, err
}

// requestError returns the error of a request that the replica has not answered.
func (l *outboundPeer) requestError(op string, err error) error {
	code := CodeLost
	var reset *mux.ResetError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		code = CodeTimeout
	case errors.As(err, &reset) && reset.Code == uint32(CodeBadRequest):
		code = CodeVersion // an older one
	}
	return &Error{Op: op, Addr: l.peer.address, Code: code, Err: err}
}

// sendStatus writes the Status of this replica, in several messages, and ends the
// stream.
func (s *Server) sendStatus(stream *mux.Stream) {
	stream.SetWriteDeadline(time.Now().Add(2 * fleetTimeout))
	text, err := json.Marshal(s.Status())
	if err != nil {
		stream.Reset(uint32(CodeInternal))
		return
	}
	for piece := range slices.Chunk(text, fleetPiece) {
		if wire.Write(stream, wire.New(wire.MsgFleet).AddBytes(wire.TagData, piece)) != nil {
			return
		}
	}
	stream.CloseWrite()
}

// randomName returns a name that no other replica has.
func randomName() string { return strings.ToLower(rand.Text()[:12]) }

// announcedNames returns the names for a WELCOME. The Server's own is the first, even
// if the Server drains, since it tells the agent whom it has reached. The slice must
// not be changed.
func (s *Server) announcedNames() []string {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	if len(s.announced) > 0 && s.announced[0] == s.name {
		return s.announced
	}
	return append([]string{s.name}, s.announced...)
}

const (
	// maxAnnounced is how many names agents hear. What they want to know is whether there
	// is another server, and that one has come while they lack it.
	maxAnnounced = 4
	// announceDelay gathers the changes that the start of several servers brings.
	announceDelay = 2 * time.Second
)

// announceSoon calls announceServers after announceDelay.
func (s *Server) announceSoon() {
	if s.announceWaits.Swap(true) {
		return
	}
	s.peers.group.Go(func() {
		backoff.Sleep(s.peers.group.Accepting(), announceDelay)
		s.announceWaits.Store(false)
		s.announceServers()
	})
}

// announceServers tells the agents which servers run, if that has changed.
func (s *Server) announceServers() {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	names, ok := s.peers.replicaNames(s.announced)
	if !ok || slices.Equal(names, s.announced) {
		return
	}
	s.announced = names
	m := wire.New(wire.MsgServers).AddStrings(wire.TagServer, names)
	for _, sess := range s.registry.allSessions() {
		sess.sendOrClose(m)
	}
}
