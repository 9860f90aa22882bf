package tunnel

// TellServers has the server say which servers run, as it does when a replica
// comes or goes.
func (s *Server) TellServers(names ...string) error {
	if err := s.setup(); err != nil {
		return err
	}
	s.tellServers(names)
	return nil
}

// ServerNames are those that an agent takes from a message.
func ServerNames(names ...string) []string {
	return serverNames(addServers(&message{kind: msgServers}, names))
}
