package tunnel

// TellServers has the server say which servers run, as it does when a replica
// comes or goes.
func (s *Server) TellServers(names ...string) error {
	if err := s.setup(); err != nil {
		return err
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	s.told = names
	m := addServers(&message{kind: msgServers}, names)
	for _, sess := range s.registry.all() {
		sess.send(m)
	}
	return nil
}

// ServerNames are those that an agent takes from a message.
func ServerNames(names ...string) []string {
	return serverNames(addServers(&message{kind: msgServers}, names))
}
