// Package prometheus collects the metrics of a tunnel's Server and Agent and of
// a Gateway, for a Prometheus. It is a module of its own, so that who imports
// the library does not see client_golang. Package provider, below it, has those
// of a kubeconfig provider.
//
//	server := &tunnel.Server{Authority: authority}
//	metrics := &prometheus.Server{Status: server.Status}
//	server.Hooks = metrics.Hooks(server.Hooks) // before it serves
//	registry.MustRegister(metrics)
//
// Counters and histograms are filled by hooks, which call the embedder's own;
// gauges are read from one Status at each scrape. Two servers of one process
// go into one registry by way of client_golang's WrapRegistererWith.
//
// A program that must do without client_golang writes the text format itself:
// examples/kubeconfig-provider does, with the names of package provider and
// without its histograms, so that the alerts fit both.
//
// metrics.md lists all metrics, alerts.yaml are alert rules over them, and
// dashboard.json is a dashboard for Grafana. Both are held against the metrics
// and labels that there are, and read by promtool, which runs the rules' tests,
// too; Grafana's dashboard-linter checks the dashboard, and .lint says what it
// finds that is left as it is, and why.
//
// # What the series cost
//
// No label holds what a client chooses: no target, no remote address, no
// client's name. A label code is one of the words for [tunnel.Code], ok or
// other.
//
// With a label cluster, a Server has 8 series for each cluster that had an
// agent since it began: 40,000 at 5,000 clusters, and with three replicas at
// most 120,000, once each cluster's agents have been at each of them. They are
// there unless WithoutClusters is set, since without them no alert can tell
// that a cluster lost its agent: how many have none cannot be summed up over
// replicas. A scrape of 5,000 clusters takes 40 ms of one core and 3.8 MB
// before compression. All else is 99 series a Server, 72 of them buckets, and
// 457 if every code there is has come up everywhere.
//
// A cluster that is gone for good leaves its series when the Server starts anew.
package prometheus
