package tunnel

import (
	"slices"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxServers is how many names of servers an agent keeps of each.
const maxServers = 100

// serverNames are those in a WELCOME or SERVERS.
func serverNames(m *wire.Message) (names []string) {
	m.Each(wire.TagServer, func(b []byte) {
		if len(b) > 0 && len(b) <= wire.MaxReplica && len(names) < maxServers {
			names = append(names, string(b))
		}
	})
	return names
}

// learn takes the names in a SERVERS for those of the servers that there are.
func (l *link) learn(m *wire.Message) {
	names := serverNames(m)
	l.mu.Lock()
	for _, name := range names {
		l.news = l.news || !slices.Contains(l.servers, name)
	}
	l.servers = names
	l.mu.Unlock()
	l.runner.change()
}

// known are the names of the servers that there are, as this one knows. They
// must not be changed.
func (l *link) known() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.servers
}

// takeNews reports whether a server was named since it was last called.
func (l *link) takeNews() (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news, l.news = l.news, false
	return news
}
