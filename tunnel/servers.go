package tunnel

import (
	"crypto/rand"
	"slices"
	"strings"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// randomName is long enough for no two replicas to have the same.
func randomName() string { return strings.ToLower(rand.Text()[:12]) }

// servers returns the names that a WELCOME says, the Server's own first: it
// tells the agent where it is, even if the Server drains. The slice is not
// changed any more.
func (s *Server) servers() []string {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	if len(s.announced) > 0 && s.announced[0] == s.name {
		return s.announced
	}
	return append([]string{s.name}, s.announced...)
}

// announceServers tells the agents which servers run, if that has changed.
func (s *Server) announceServers() {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	names, ok := s.peers.names()
	if !ok || slices.Equal(names, s.announced) {
		return
	}
	s.announced = names
	m := wire.New(wire.MsgServers).AddStrings(wire.TagServer, names)
	for _, sess := range s.registry.all() {
		sess.send(m)
	}
}

// holds reports whether the agent said in its HELLO that it has a session with
// this Server already.
func (s *Server) holds(hello *wire.Message) bool {
	return slices.Contains(hello.Texts(wire.TagHeld), s.name)
}
