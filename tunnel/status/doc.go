// Package status is a page that shows operators a fleet of tunnel servers: which
// clusters have no agent, what is wrong with the others, and which replica holds
// which cluster.
//
//	page := &status.Handler{Fleet: server.Fleet}
//	mux.Handle("/tunnel/", authenticated(http.StripPrefix("/tunnel", page)))
//
// The server renders the page as HTML. A small script keeps it up to date, and
// everything else works without it. Clusters in trouble come first, a hundred
// clusters a page, and search, state and page number are in the URL.
// Nothing is loaded from other hosts, and the Content-Security-Policy forbids it.
//
// # Security
//
// The page shows the names of clusters, the agents' addresses, why sessions ended, and
// who asked in vain for which target, to every client that can load it. It has no users of its own: serve it behind
// authentication, or where only operators can reach it. It changes nothing; its
// only form is the search. On 127.0.0.1 it is not enough that nobody else can connect: a
// web page in the operator's browser can, by a name that its DNS server leads there. Refuse
// each Host there that is no address, not localhost, and not a name of yours.
//
// # When something else serves better
//
// The page has no charts and no rates, and sends no alerts: use metrics for those (package
// tunnel/prometheus). Programs should read [tunnel.Server.StatusHandler].
package status
