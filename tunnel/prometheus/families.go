package prometheus

import "github.com/causewayproject/causeway/tunnel/prometheus/internal/family"

// The families of a Server, over all clusters.
var (
	ready          = gauge("causeway_tunnel_ready", "1 while the server takes agents, 0 once it drains.")
	handshakes     = gauge("causeway_tunnel_handshakes", "Carriers that are not authenticated yet; waiting ones have no place of MaxPending yet.", "state")
	authorityEnds  = gauge("causeway_tunnel_authority_expiry_timestamp_seconds", "When the certificate of the authority that signs expires; absent until the server is set up.")
	clusters       = gauge("causeway_tunnel_clusters", "Clusters that have an agent, or had one since the server started whose certificate has not expired; connected ones have a session that takes streams.", "state")
	agents         = gauge("causeway_tunnel_agents", "Agents that have a session; each replica of an agent counts.")
	sessions       = gauge("causeway_tunnel_sessions", "Sessions; draining ones take no new streams.", "state")
	streams        = gauge("causeway_tunnel_streams", "Open relayed connections.")
	receivedBytes  = counter("causeway_tunnel_received_bytes_total", "Payload that came from agents.")
	sentBytes      = counter("causeway_tunnel_sent_bytes_total", "Payload that went to agents.")
	sessionsOpened = counter("causeway_tunnel_sessions_opened_total", "Sessions that were opened.")
	sessionsClosed = counter("causeway_tunnel_sessions_closed_total", "Sessions that ended, by cause; ok: in order.", "code")
	refusals       = counter("causeway_tunnel_refusals_total", "Carriers, enrolments and renewals that were refused; held: an agent that looks for another replica, which is not a failure.", "op", "code")
	enrollments    = counter("causeway_tunnel_enrollments_total", "First certificates that were issued to agents.")
	renewals       = counter("causeway_tunnel_renewals_total", "Further certificates that were issued to agents.")
	payloads       = counter("causeway_tunnel_payloads_total", "Payloads that were sent to agents.", "result")
	dials          = counter("causeway_tunnel_dials_total", "Dials, by result.", "code")
	dialDuration   = quick("causeway_tunnel_dial_duration_seconds", "Duration of dials, from the call to the target's answer.", "result")
)

// The families of a Server's peers, the other replicas.
var (
	peersConnected    = gauge("causeway_tunnel_peers", "Other replicas that this one has a session with.")
	peersDisconnected = counter("causeway_tunnel_peer_disconnects_total", "Sessions with other replicas that ended, by cause; ok: in order.", "code")
	peersFailed       = counter("causeway_tunnel_peer_failures_total", "Attempts to connect to another replica that failed.", "code")
	forwards          = counter("causeway_tunnel_forwards_total", "Dials that went to another replica, by result.", "code")
	forwardDuration   = quick("causeway_tunnel_forward_duration_seconds", "Duration of dials that went to another replica.", "result")
)

// The families of a Server with a label cluster.
var (
	clusterSessions  = gauge("causeway_tunnel_cluster_sessions", "Sessions of the cluster that take streams; 0: it had an agent and has none.", "cluster")
	clusterReceived  = counter("causeway_tunnel_cluster_received_bytes_total", "Payload that came from the cluster.", "cluster")
	clusterSent      = counter("causeway_tunnel_cluster_sent_bytes_total", "Payload that went to the cluster.", "cluster")
	clusterDials     = counter("causeway_tunnel_cluster_dials_total", "Dials that went to a session of the cluster.", "cluster")
	clusterFailures  = counter("causeway_tunnel_cluster_dial_failures_total", "Dials that went to a session of the cluster and failed.", "cluster")
	clusterOpened    = counter("causeway_tunnel_cluster_sessions_opened_total", "Sessions of the cluster that were opened.", "cluster")
	clusterRoundTrip = gauge("causeway_tunnel_cluster_round_trip_seconds", "Round-trip time to the cluster's agents, the slowest; absent while none was measured.", "cluster")
	clusterExpires   = gauge("causeway_tunnel_cluster_certificate_expiry_timestamp_seconds", "When the first certificate of the cluster's connected agents expires; absent while there is none.", "cluster")
)

var (
	serverFamilies = []family.Family{
		ready, handshakes, authorityEnds, clusters, agents, sessions, streams, receivedBytes, sentBytes, sessionsOpened, sessionsClosed,
		refusals, enrollments, renewals, payloads, dials, dialDuration,
		peersConnected, peersDisconnected, peersFailed, forwards, forwardDuration,
	}
	clusterFamilies = []family.Family{
		clusterSessions, clusterReceived, clusterSent, clusterDials, clusterFailures,
		clusterOpened, clusterRoundTrip, clusterExpires,
	}
)

// The families of an Agent.
var (
	agentSessions  = gauge("causeway_agent_sessions", "Sessions with servers; draining ones take no new streams.", "state")
	agentRoundTrip = gauge("causeway_agent_round_trip_seconds", "Round-trip time to servers, the slowest; absent while none was measured.")
	agentExpires   = gauge("causeway_agent_certificate_expiry_timestamp_seconds", "When the agent's certificate expires; absent until it was connected.")
	agentFailures  = counter("causeway_agent_failures_total", "Attempts to connect, to enrol or to renew that failed.", "op", "code")
	agentDials     = counter("causeway_agent_dials_total", "Dials of targets, by result; denied: by the agent's policy.", "code")
	agentDialTook  = quick("causeway_agent_dial_duration_seconds", "Duration of dials of targets, name resolution included.", "result")

	agentFamilies = []family.Family{agentSessions, agentRoundTrip, agentExpires, agentFailures, agentDials, agentDialTook}
)

// The families of a Gateway.
var (
	gatewayReady       = gauge("causeway_gateway_ready", "1 while the gateway takes clients, 0 once it drains.")
	gatewayOpen        = gauge("causeway_gateway_connections", "Open connections and HTTP/2 streams of clients, those in their handshake included.")
	gatewayHandshakes  = gauge("causeway_gateway_handshakes", "Connections that are not authenticated yet; waiting ones have no place of MaxPending yet.", "state")
	gatewayTotal       = counter("causeway_gateway_connections_total", "Connections and HTTP/2 streams of clients.")
	gatewayReceived    = counter("causeway_gateway_received_bytes_total", "Bytes that came from clients, on connections that have ended.")
	gatewaySent        = counter("causeway_gateway_sent_bytes_total", "Bytes that went to clients, on connections that have ended.")
	gatewayFailures    = counter("causeway_gateway_failures_total", "Clients that got no connection, by the phase that failed, and by the side to look at: policy, target, tunnel or caller; empty: the gateway's own.", "door", "phase", "side")
	gatewayInterrupted = counter("causeway_gateway_interrupted_total", "Connections that did not end in order.", "door")
	gatewayDialTook    = quick("causeway_gateway_dial_duration_seconds", "Duration of dials for clients.", "door", "result")
	gatewayLasted      = family.Family{Name: "causeway_gateway_connection_duration_seconds", Kind: family.Histogram, Help: "Duration of relayed connections, the handshake included.", Labels: []string{"door"}, Buckets: []float64{.01, .1, 1, 10, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600}}

	gatewayFamilies = []family.Family{
		gatewayReady, gatewayOpen, gatewayHandshakes, gatewayTotal, gatewayReceived, gatewaySent, gatewayFailures, gatewayInterrupted,
		gatewayDialTook, gatewayLasted,
	}
)

func gauge(name, help string, labels ...string) family.Family {
	return family.Family{Name: name, Kind: family.Gauge, Help: help, Labels: labels}
}

func counter(name, help string, labels ...string) family.Family {
	return family.Family{Name: name, Kind: family.Counter, Help: help, Labels: labels}
}

// quick is a histogram of what should take milliseconds, and is given up after some
// 30 seconds.
func quick(name, help string, labels ...string) family.Family {
	return family.Family{Name: name, Kind: family.Histogram, Help: help, Labels: labels, Buckets: []float64{
		.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
	}}
}
