// Package prometheus collects Prometheus metrics of a tunnel's Server and Agent and of a
// Gateway. It is a module of its own, so that importers of the library do not depend on
// client_golang. Module controllers has those of the reconcilers.
//
//	server := &tunnel.Server{Authority: authority}
//	metrics := &prometheus.Server{Status: server.Status}
//	server.Hooks = metrics.Hooks(server.Hooks) // before it serves
//	registry.MustRegister(metrics)
//
// Hooks fill the counters and histograms, and call the hooks that they replace. Gauges
// are read from one Status at each scrape. For two servers of one process in one
// registry, use client_golang's WrapRegistererWith. The alerts and the dashboard sum over
// such a label.
//
// metrics.md lists all metrics, alerts.yaml has alert rules, and dashboard.json is a
// dashboard for Grafana. Tests check that both use only metrics and labels that exist.
// promtool checks the expressions and runs the rules' own tests. Grafana's
// dashboard-linter checks the dashboard, and .lint lists the findings that are
// accepted, and why.
//
// # What the series cost
//
// No label has a value that a client chooses: no target, no remote address, no client's
// name. The label code is a word for a [tunnel.Code], ok or other.
//
// A Server has 8 series with the label cluster for each cluster that had an agent since
// the server started: 40,000 at 5,000 clusters, and at most 120,000 with three replicas,
// when each cluster's agents have been connected to each of them. A relabeling rule of
// Prometheus can drop them, but then no alert can tell that a cluster lost its agent: the
// numbers of clusters without one can't be summed up over replicas. A scrape of 5,000 clusters
// takes 50 ms of one core and 3.8 MB before compression. All other metrics are 102 series
// a Server, 72 of them buckets, and 460 if every code has occurred everywhere.
//
// The series of a cluster that is gone for good end when the Server is restarted.
package prometheus
