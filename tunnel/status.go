package tunnel

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Status is the state of a Server at one moment.
type Status struct {
	// Ready: the Server accepts agents.
	Ready    bool            `json:"ready"`
	Clusters []ClusterStatus `json:"clusters"` // by name
	// Pending counts the carriers in their handshake (see MaxPending), and Waiting those
	// that wait to begin it.
	Pending int `json:"pending"`
	Waiting int `json:"waiting"`
	// AuthorityExpires is when the certificate of the authority that signs does.
	AuthorityExpires time.Time `json:"authorityExpires,omitzero"`
	// Failures are the dials that this Server was asked for and that failed, until a day
	// after the last of a cluster; of 5,000 clusters at most. They are sorted by cluster,
	// the latest Code first. The cluster may be none of Clusters: another replica has its
	// agent, or there is none.
	Failures []DialFailures `json:"failures,omitempty"`
	// Refusals are the agents, replicas and strangers that this Server has refused, until a
	// day after the last with the same Op and Code; the latest first.
	Refusals []Refusals `json:"refusals,omitempty"`
}

// ClusterStatus is the state of a cluster. The cluster has an agent, or has had one
// that may come back: its certificate has not expired.
type ClusterStatus struct {
	Cluster string `json:"cluster"`
	// Connected: at least one session accepts streams.
	Connected bool          `json:"connected"`
	Sessions  []SessionInfo `json:"sessions"` // the oldest first
	// LastError says why a session ended that did not end in order: the last such.
	LastError string `json:"lastError,omitempty"`
	// Last is the session that ended last. It is nil while there are Sessions.
	Last *EndedSession `json:"last,omitempty"`
}

// EndedSession is what is known of an agent that has left.
type EndedSession struct {
	SessionInfo
	Ended time.Time `json:"ended"`
	// Error says why; empty if the agent ended it in order.
	Error string `json:"error,omitempty"`
}

// SessionInfo is the state of an agent's session.
type SessionInfo struct {
	Cluster string    `json:"cluster"`
	Agent   string    `json:"agent"`
	Replica string    `json:"replica,omitempty"` // of the agent: [Agent.Replica]
	ID      string    `json:"id"`                // unique in the Server's life
	Remote  string    `json:"remote"`            // where the carrier came from
	Program string    `json:"program,omitempty"` // the agent's [Agent.Program]
	Since   time.Time `json:"since"`             // when the session began
	Expires time.Time `json:"expires"`           // when the agent's latest certificate does
	// Draining: it accepts no new streams.
	Draining bool `json:"draining"`
	Streams  int  `json:"streams"` // open now
	// DialCounts counts all dials that went to this session. Those that were under way when
	// the session ended have failed. Recent counts those that ended in the last five to ten
	// minutes.
	DialCounts
	Recent DialCounts `json:"recent"`
	// BytesIn came from the agent, BytesOut went to it. Both count the payload of
	// streams.
	BytesIn  uint64 `json:"bytesIn"`
	BytesOut uint64 `json:"bytesOut"`
	// RoundTrip is the last one measured, in nanoseconds; zero: none yet.
	RoundTrip time.Duration `json:"roundTrip"`
}

// DialCounts are dials, those of them that failed, and those of the failed that the agent's
// policy denied ([CodeDenied]).
type DialCounts struct {
	Dials  uint64 `json:"dials"`
	Failed uint64 `json:"failed"`
	Denied uint64 `json:"denied"`
}

func (sess *agentSession) sessionInfo() SessionInfo {
	stats := sess.Mux.Stats()
	all, recent := sess.counts.load()
	remote := "" // the connection of a Listener of somebody else's may have none
	if sess.remote != nil {
		remote = sess.remote.String()
	}
	return SessionInfo{
		Cluster: sess.id.Cluster, Agent: sess.id.Agent, Replica: sess.replica, ID: sess.number, Remote: remote, Program: sess.program,
		Since: sess.Since, Expires: sess.lifeEnd(), Draining: sess.Retired(),
		Streams: sess.OpenStreams(), DialCounts: all, Recent: recent,
		BytesIn: stats.BytesIn, BytesOut: stats.BytesOut, RoundTrip: stats.RTT,
	}
}

// Status returns the present state.
func (s *Server) Status() Status {
	status := Status{Clusters: []ClusterStatus{}}
	if s.setup() != nil {
		return status
	}
	status.Ready = !s.groups.Closed() && !s.peers.isDraining()
	status.Pending, status.Waiting = s.admission.Load()
	status.AuthorityExpires = s.authority.Load().Certificate.NotAfter
	sessions, clusters := s.registry.allSessions(), s.registry.clusterStatuses(s.registrar.clock())
	for _, sess := range sessions {
		if c := clusters[sess.id.Cluster]; c != nil { // else it has ended meanwhile
			info := sess.sessionInfo()
			c.Connected = c.Connected || !info.Draining
			c.Sessions = append(c.Sessions, info)
			c.Last = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		status.Clusters = append(status.Clusters, *clusters[name])
	}
	status.Failures, status.Refusals = s.failures.all(), s.refusals.all()
	return status
}

// clusterStatuses returns the clusters that are not to be forgotten yet, without their
// sessions.
func (r *registry) clusterStatuses(now time.Time) map[string]*ClusterStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweepLocked(now)
	all := map[string]*ClusterStatus{}
	for name, c := range r.clusters {
		all[name] = &ClusterStatus{Cluster: name, Sessions: []SessionInfo{}, LastError: c.lastErr, Last: c.last}
	}
	return all
}

// StatusHandler serves, for GET and HEAD,
//
//	/healthz                 200 while the process can answer
//	/readyz                  200 while the Server takes agents, else 503. With Peers
//	                         it is 503 also until each of them is connected or
//	                         can't be connected, for 10 seconds at most; and
//	                         while the Server is cut off (see below)
//	/readyz?cluster=NAME     200 while an agent of the cluster takes streams, else 503
//	/status                  Status as JSON
//	/status?cluster=NAME     its ClusterStatus, and its Failures; else 404
//
// A Server is cut off if no agent is connected any more, and Peers names other replicas
// of which none can be reached, both for 15 seconds: every dial would fail. A replica
// whose host refuses connections is down, and does not count as out of reach. A Server
// that no agent has come to yet is not cut off. Of each 5 minutes that it lasts, /readyz
// is 200 for the last one, so that agents can come back through a load balancer that
// asks for it.
//
// It shows the names of clusters, the addresses of agents, and the targets and callers of
// dials that failed to every client that can reach it: serve it where only operators can.
func (s *Server) StatusHandler() http.Handler {
	return newStatusMux(s.serveReady, s.serveStatus)
}

func newStatusMux(ready, status http.HandlerFunc) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	m.HandleFunc("GET /readyz", ready)
	m.HandleFunc("GET /status", status)
	return m
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	status := s.Status()
	name, cutOff := r.FormValue("cluster"), s.cutOffCause()
	switch c, ok := status.findCluster(name); {
	case !status.Ready:
		writeText(w, http.StatusServiceUnavailable, "draining")
	case s.peers.isStarting():
		writeText(w, http.StatusServiceUnavailable, "meeting the other replicas")
	case cutOff != nil && name == "":
		writeText(w, http.StatusServiceUnavailable, "cut off: no agent is connected, and "+cutOff.Error())
	case name != "" && (!ok || !c.Connected):
		writeText(w, http.StatusServiceUnavailable, "no agent of the cluster is connected")
	default:
		writeText(w, http.StatusOK, "ok")
	}
}

const (
	// cutOffDelay is how long agents and replicas have to come back.
	cutOffDelay = 15 * time.Second
	// In each cutOffRound a Server that is cut off is ready for cutOffPause.
	cutOffRound = 5 * time.Minute
	cutOffPause = time.Minute
)

// cutOffCause returns why the Server can serve no dial, as StatusHandler defines it.
func (s *Server) cutOffCause() error {
	since, ok := s.registry.emptySince()
	if !ok {
		return nil
	}
	unreachable, err := s.peers.unreachableSince()
	if unreachable.After(since) {
		since = unreachable
	}
	if lasts := time.Since(since) - cutOffDelay; lasts < 0 || lasts%cutOffRound >= cutOffRound-cutOffPause {
		return nil
	}
	return err
}

func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request) {
	status := s.Status()
	name := r.FormValue("cluster")
	c, ok := status.findCluster(name)
	switch {
	case name == "":
		writeJSON(w, status)
	case ok:
		failures := slices.DeleteFunc(status.Failures, func(f DialFailures) bool { return f.Cluster != name })
		writeJSON(w, struct {
			ClusterStatus
			Failures []DialFailures `json:"failures,omitempty"`
		}{c, failures})
	default:
		writeText(w, http.StatusNotFound, "no agent of the cluster is known")
	}
}

func (s *Status) findCluster(name string) (ClusterStatus, bool) {
	i := slices.IndexFunc(s.Clusters, func(c ClusterStatus) bool { return c.Cluster == name })
	if i < 0 {
		return ClusterStatus{}, false
	}
	return s.Clusters[i], true
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write([]byte(text + "\n"))
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(v)
}

// AgentStatus is the state of an Agent at one moment.
type AgentStatus struct {
	// Connected: at least one session takes streams.
	Connected bool   `json:"connected"`
	Cluster   string `json:"cluster,omitempty"`
	Agent     string `json:"agent,omitempty"`
	// Expires is when the certificate expires.
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
	Name      string        `json:"name,omitempty"` // its name among the replicas; may be empty
	Since     time.Time     `json:"since"`
	Draining  bool          `json:"draining"`
	Streams   int           `json:"streams"`
	BytesIn   uint64        `json:"bytesIn"`  // from the server
	BytesOut  uint64        `json:"bytesOut"` // to the server
	RoundTrip time.Duration `json:"roundTrip"`
}

// agentState is the part of an AgentStatus that is kept.
type agentState struct {
	sessions  []*serverSession
	id        Identity
	expires   time.Time
	lastErr   error
	lastErrAt time.Time
}

// Status returns the present state. It is safe for concurrent use with
// Run.
func (a *Agent) Status() AgentStatus {
	sessions := a.openSessions()
	a.mu.Lock()
	st := a.state
	a.mu.Unlock()
	status := AgentStatus{Cluster: st.id.Cluster, Agent: st.id.Agent, Expires: st.expires, Sessions: []AgentLink{}}
	for _, l := range sessions {
		stats := l.Mux.Stats()
		draining := !l.TakesStreams()
		status.Connected = status.Connected || !draining
		status.Sessions = append(status.Sessions, AgentLink{
			Server: l.server, Name: l.name, Since: l.Since, Draining: draining, Streams: l.OpenStreams(),
			BytesIn: stats.BytesIn, BytesOut: stats.BytesOut, RoundTrip: stats.RTT,
		})
	}
	if st.lastErr != nil {
		status.LastError, status.LastErrorAt = causeText(st.lastErr), st.lastErrAt
	}
	return status
}

// StatusHandler serves, for GET and HEAD, /healthz (200 while the process can
// answer), /readyz (200 while a session takes streams, else 503) and /status
// (AgentStatus as JSON).
func (a *Agent) StatusHandler() http.Handler {
	ready := func(w http.ResponseWriter, _ *http.Request) {
		if a.Status().Connected {
			writeText(w, http.StatusOK, "ok")
		} else {
			writeText(w, http.StatusServiceUnavailable, "not connected to a server")
		}
	}
	return newStatusMux(ready, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.Status()) })
}

func (a *Agent) setError(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.lastErr, a.state.lastErrAt = err, time.Now()
}

func (a *Agent) reportFailure(server string, err error, wait time.Duration) {
	a.setError(err)
	callHook3(a.Hooks.Failed, server, err, wait)
}

// openSessions returns the sessions that have not ended.
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
	a.state.sessions = slices.DeleteFunc(slices.Clone(a.state.sessions), func(other *serverSession) bool { return other == l })
	a.mu.Unlock()
	if err != nil {
		a.setError(err)
	}
	callHook2(a.Hooks.Disconnected, l.server, err)
}
