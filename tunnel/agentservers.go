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

// learnServers takes the names in a SERVERS for those of the servers that there are.
func (l *serverSession) learnServers(m *wire.Message) {
	names := serverNames(m)
	l.state.Lock()
	for _, name := range names {
		l.newNames = l.newNames || !slices.Contains(l.servers, name)
	}
	l.servers = names
	l.state.Unlock()
	l.runner.wakeRun()
}

// knownServers are the names of the servers that there are, as this one knows. They
// must not be changed.
func (l *serverSession) knownServers() []string {
	l.state.Lock()
	defer l.state.Unlock()
	return l.servers
}

// takeNewNames reports whether a server was named since it was last called.
func (l *serverSession) takeNewNames() (any bool) {
	l.state.Lock()
	defer l.state.Unlock()
	any, l.newNames = l.newNames, false
	return any
}
