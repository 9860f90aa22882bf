// Package status is a page on which an operator sees a fleet of tunnels: which
// clusters have no agent, what is wrong with the others, which replica holds
// what, and how it went in the last minutes.
//
//	page := &status.Handler{Fleet: server.Fleet}
//	go page.Run(ctx) // optional: the past is there when somebody looks
//	mux.Handle("/tunnel/", authenticated(http.StripPrefix("/tunnel", page)))
//
// The page is HTML that the server makes; a small script keeps it up to date,
// and everything but that works without. What is in trouble comes first, a
// hundred clusters a page, and search, state, order and page are in the URL.
// Nothing is loaded from elsewhere, and the Content-Security-Policy forbids it.
//
// # Security
//
// The page tells whoever asks the names of clusters, the agents' addresses and
// why sessions ended. It knows no users: serve it behind authentication, or
// where only operators reach it. It changes nothing: there is no form but the
// search.
//
// # When something else serves better
//
// It remembers the last minutes, of the process that it runs in, and alerts
// nobody: that is for metrics. Programs read [tunnel.Server.StatusHandler].
package status
