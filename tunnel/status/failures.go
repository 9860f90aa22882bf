package status

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/causewayproject/causeway/tunnel"
)

// mergeFailures returns the failures of all replicas: one for each cluster and code, the
// latest first.
func mergeFailures(fleet []tunnel.ReplicaStatus) (all []tunnel.DialFailures) {
	type key struct {
		cluster string
		code    tunnel.Code
	}
	at := map[key]int{}
	for i := range fleet {
		if !fleet[i].Connected && !fleet[i].Self {
			continue
		}
		for _, f := range fleet[i].Status.Failures {
			k := key{f.Cluster, f.Code}
			j, ok := at[k]
			if !ok {
				at[k] = len(all)
				all = append(all, f)
				continue
			}
			count := all[j].Count + f.Count
			if f.Last.After(all[j].Last) {
				all[j] = f
			}
			all[j].Count = count
		}
	}
	slices.SortStableFunc(all, func(a, b tunnel.DialFailures) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Code, b.Code))
	})
	return all
}

// lastFailure returns the last failure that is a trouble of the cluster; nil if there was
// none.
func (b *fleetRecord) lastFailure(cluster string) *tunnel.DialFailures {
	for i := range b.failures {
		if f := &b.failures[i]; f.Cluster == cluster && isTrouble(f) {
			return f
		}
	}
	return nil
}

// isTrouble reports whether the failure is a trouble of the cluster: neither a rule nor the
// caller is its cause.
func isTrouble(f *tunnel.DialFailures) bool {
	return f.Side == tunnel.SideTarget || f.Side == tunnel.SideTunnel
}

// mergeRefusals returns the refusals of all replicas: one for each operation and code, the
// latest first.
func mergeRefusals(fleet []tunnel.ReplicaStatus) (all []tunnel.Refusals) {
	for i := range fleet {
		if !fleet[i].Connected && !fleet[i].Self {
			continue
		}
		for _, r := range fleet[i].Status.Refusals {
			j := slices.IndexFunc(all, func(o tunnel.Refusals) bool { return o.Op == r.Op && o.Code == r.Code })
			if j < 0 {
				all = append(all, r)
				continue
			}
			count := all[j].Count + r.Count
			if r.Last.After(all[j].Last) {
				all[j] = r
			}
			all[j].Count = count
		}
	}
	slices.SortStableFunc(all, func(a, b tunnel.Refusals) int { return b.Last.Compare(a.Last) })
	return all
}

// refusalRow shows the refusals of one operation and code.
type refusalRow struct {
	Key, What, Text, Remote string
	Count                   uint64
	Last, Ago               string
}

// opTexts say what was refused, for people.
var opTexts = map[string]string{"connect": "Connection", "enroll": "Enrolment", "renew": "Renewal"}

func (b *fleetRecord) refusalRows() (rows []refusalRow) {
	for i := range b.refusals {
		r := &b.refusals[i]
		rows = append(rows, refusalRow{
			Key: fmt.Sprint(r.Op, " ", uint32(r.Code)), What: cmp.Or(opTexts[r.Op], r.Op), Text: r.Text, Remote: r.Remote, Count: r.Count,
			Last: formatTime(r.Last, b.at), Ago: formatBrief(b.at.Sub(r.Last)),
		})
	}
	return rows
}

// sideTexts say where to look, for people.
var sideTexts = map[tunnel.Side]struct{ word, means, sign, key string }{
	tunnel.SidePolicy: {"Denied by policy", "a rule of the agent or the server does not allow it: nothing is broken", "⊘", "alone"},
	tunnel.SideTarget: {"Target", "the agent has tried: the target, its name, or the way to it is in trouble", "!", "failing"},
	tunnel.SideTunnel: {"Tunnel", "no agent is connected, or its connection was lost", "✕", "down"},
	tunnel.SideCaller: {"Caller", "the caller gave up, or asked for what is no address", "→", "draining"},
}

// failureRow shows the failures of a cluster by one code.
type failureRow struct {
	Key, Cluster, URL      string
	Side, Means, Sign, Tag string
	Text, Target, Caller   string
	Count                  uint64
	Last, Ago              string
}

// failureRows shows the failures of a cluster, or, for an empty name, those of all that
// there is room for, and how many there are.
func (b *fleetRecord) failureRows(cluster string) (rows []failureRow, all int) {
	const room = 5
	for i := range b.failures {
		f := &b.failures[i]
		if cluster != "" && f.Cluster != cluster {
			continue
		}
		if all++; cluster == "" && all > room {
			continue
		}
		side, ok := sideTexts[f.Side]
		if !ok { // a newer replica says it
			side = sideTexts[tunnel.SideTunnel]
		}
		rows = append(rows, failureRow{
			Key: fmt.Sprint(f.Cluster, " ", uint32(f.Code)), Cluster: f.Cluster, URL: query{Cluster: f.Cluster}.link(),
			Side: side.word, Means: side.means, Sign: side.sign, Tag: side.key,
			Text: f.Text, Target: f.Target, Caller: f.Caller, Count: f.Count,
			Last: formatTime(f.Last, b.at), Ago: formatBrief(b.at.Sub(f.Last)),
		})
	}
	return rows, all
}

// lostRow shows a session that is over.
type lostRow struct {
	Key, Agent, Replica, Program, Remote string
	Since, Ended, Ago, Why               string
}

// lostRows shows who was connected last, the latest first, if nobody is. Sessions that no
// replica tells of any more are shown as they were seen last.
func (b *fleetRecord) lostRows(c *clusterRecord) (rows []lostRow) {
	if len(c.sessions) > 0 {
		return nil
	}
	add := func(replica string, s *tunnel.SessionInfo, ended, ago, why string) {
		of := session{SessionInfo: *s}
		rows = append(rows, lostRow{
			Key: replica + " " + s.ID, Agent: of.agentText(), Replica: replica, Program: s.Program, Remote: s.Remote,
			Since: formatTime(s.Since, b.at), Ended: ended, Ago: ago, Why: why,
		})
	}
	slices.SortStableFunc(c.ended, func(x, y endedSession) int { return y.Ended.Compare(x.Ended) })
	for i := range c.ended {
		e := &c.ended[i]
		add(e.replica, &e.SessionInfo, formatTime(e.Ended, b.at), formatBrief(b.at.Sub(e.Ended)), cmp.Or(e.Error, "The agent ended it in order."))
	}
	for i := range c.seen {
		s := &c.seen[i]
		if !slices.ContainsFunc(c.ended, func(e endedSession) bool { return e.replica == s.replica }) {
			add(s.replica, &s.SessionInfo, formatTime(c.seenAt, b.at)+" or later", "", "The replica can't be asked, or has restarted.")
		}
	}
	return rows
}
