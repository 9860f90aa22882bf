package tunnel

import (
	"net/http"
	"slices"
	"time"
)

// AgentStatus is what an Agent knows at one moment.
type AgentStatus struct {
	// Connected: at least one session takes streams.
	Connected bool   `json:"connected"`
	Cluster   string `json:"cluster,omitempty"`
	Agent     string `json:"agent,omitempty"`
	// Expires is when the certificate does.
	Expires  time.Time   `json:"expires,omitzero"`
	Sessions []AgentLink `json:"sessions"`
	// LastError is the last failure to connect, enrol or renew, or the end of a
	// session; At is when that was.
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
}

// AgentLink is an Agent's session.
type AgentLink struct {
	Server    string        `json:"server"`         // its address
	Name      string        `json:"name,omitempty"` // its name among the replicas; empty: it has none
	Since     time.Time     `json:"since"`
	Draining  bool          `json:"draining"`
	Streams   int           `json:"streams"`
	BytesIn   uint64        `json:"bytesIn"`  // from the server
	BytesOut  uint64        `json:"bytesOut"` // to the server
	RoundTrip time.Duration `json:"roundTrip"`
}

// agentState is what Status is made of.
type agentState struct {
	sessions  []*serverSession
	id        Identity
	expires   time.Time
	lastErr   error
	lastErrAt time.Time
}

// Status returns what the Agent knows now. It is safe for concurrent use with
// Run.
func (a *Agent) Status() AgentStatus {
	sessions := a.openSessions()
	a.mu.Lock()
	st := a.state
	a.mu.Unlock()
	status := AgentStatus{Cluster: st.id.Cluster, Agent: st.id.Agent, Expires: st.expires, Sessions: []AgentLink{}}
	for _, l := range sessions {
		stats := l.mux.Stats()
		draining := !l.takesStreams()
		status.Connected = status.Connected || !draining
		status.Sessions = append(status.Sessions, AgentLink{
			Server: l.server, Name: l.name, Since: l.since, Draining: draining, Streams: l.openStreams(),
			BytesIn: stats.BytesIn, BytesOut: stats.BytesOut, RoundTrip: stats.RTT,
		})
	}
	if st.lastErr != nil {
		status.LastError, status.LastErrorAt = st.lastErr.Error(), st.lastErrAt
	}
	return status
}

// StatusHandler serves, for GET and HEAD, /healthz (200 while the process can
// answer), /readyz (200 while a session takes streams, else 503) and /status
// (AgentStatus as JSON).
func (a *Agent) StatusHandler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if a.Status().Connected {
			say(w, http.StatusOK, "ok")
		} else {
			say(w, http.StatusServiceUnavailable, "not connected to a server")
		}
	})
	m.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, a.Status()) })
	return m
}

func (a *Agent) setError(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.lastErr, a.state.lastErrAt = err, time.Now()
}

func (a *Agent) failed(server string, err error, wait time.Duration) {
	a.setError(err)
	if a.Hooks.Failed != nil {
		a.Hooks.Failed(server, err, wait)
	}
}

// openSessions returns those that have not ended.
func (a *Agent) openSessions() []*serverSession {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.state.sessions)
}

// addSession is called before a session starts.
func (a *Agent) addSession(l *serverSession, c *Credentials) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.sessions = append(a.state.sessions, l)
	a.state.id, a.state.expires = c.identity(), c.expires()
}

// removeSession is called when a session has ended.
func (r *runner) removeSession(l *serverSession, err error) {
	a := r.Agent
	a.mu.Lock()
	kept := a.state.sessions[:0:0]
	for _, other := range a.state.sessions {
		if other != l {
			kept = append(kept, other)
		}
	}
	a.state.sessions = kept
	a.mu.Unlock()
	if err != nil {
		a.setError(err)
	}
	if a.Hooks.Disconnected != nil {
		a.Hooks.Disconnected(l.server, err)
	}
}
