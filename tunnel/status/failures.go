package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// mergeKey is the cluster, or the operation, and the code that failures have in common.
type mergeKey struct {
	of   string
	code tunnel.Code
}

// mergeLatest returns what the replicas that answer tell: of each key one, the latest, with
// the counts of all; the latest first. read tells the key, the time and the count of one.
func mergeLatest[T any](fleet []tunnel.ReplicaStatus, list func(*tunnel.Status) []T, read func(*T) (mergeKey, time.Time, *uint64)) (all []T) {
	at := map[mergeKey]int{}
	for i := range fleet {
		if !fleet[i].Connected && !fleet[i].Self {
			continue
		}
		for _, one := range list(&fleet[i].Status) {
			key, last, count := read(&one)
			j, ok := at[key]
			if !ok {
				at[key] = len(all)
				all = append(all, one)
				continue
			}
			_, before, sum := read(&all[j])
			*sum += *count
			if last.After(before) {
				*count = *sum
				all[j] = one
			}
		}
	}
	slices.SortStableFunc(all, func(a, b T) int {
		keyA, lastA, _ := read(&a)
		keyB, lastB, _ := read(&b)
		return cmp.Or(lastB.Compare(lastA), cmp.Compare(keyA.of, keyB.of), cmp.Compare(keyA.code, keyB.code))
	})
	return all
}

func readFailure(f *tunnel.DialFailures) (mergeKey, time.Time, *uint64) {
	return mergeKey{f.Cluster, f.Code}, f.Last, &f.Count
}

func readRefusal(r *tunnel.Refusals) (mergeKey, time.Time, *uint64) {
	return mergeKey{r.Op, r.Code}, r.Last, &r.Count
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

// opTexts say what was refused, for people.
var opTexts = map[string]string{"connect": "Connection", "enroll": "Enrolment", "renew": "Renewal"}

func opText(op string) string { return cmp.Or(opTexts[op], op) }

// sideTexts say where to look, for people.
var sideTexts = map[tunnel.Side]stateText{
	tunnel.SidePolicy: {"alone", "Denied by policy", "⊘", "a rule of the agent or the server does not allow it: nothing is broken"},
	tunnel.SideTarget: {"failing", "Target", "!", "the agent has tried: the target, its name, or the way to it is in trouble"},
	tunnel.SideTunnel: {"down", "Tunnel", "✕", "no agent is connected, or its connection was lost"},
	tunnel.SideCaller: {"draining", "Caller", "→", "the caller gave up, or asked for what is no address"},
}

func sideText(side tunnel.Side) stateText {
	if t, ok := sideTexts[side]; ok {
		return t
	}
	return sideTexts[tunnel.SideTunnel] // a newer replica says it
}

// failuresOf returns the failures of a cluster, or, for an empty name, those of all that
// there is room for, and how many there are.
func (b *fleetRecord) failuresOf(cluster string) (some []tunnel.DialFailures, all int) {
	const room = 5
	if cluster == "" {
		return b.failures[:min(len(b.failures), room)], len(b.failures)
	}
	some = slices.DeleteFunc(slices.Clone(b.failures), func(f tunnel.DialFailures) bool { return f.Cluster != cluster })
	return some, len(some)
}

// lostRow shows a session that is over.
type lostRow struct {
	session
	Until, Ago, Why string
}

// lostRows shows who was connected last, the latest first, if nobody is. Sessions that no
// replica tells of any more are shown as they were seen last.
func (b *fleetRecord) lostRows(c *clusterRecord) (rows []lostRow) {
	if len(c.sessions) > 0 {
		return nil
	}
	slices.SortStableFunc(c.ended, func(x, y endedSession) int { return y.Ended.Compare(x.Ended) })
	for i := range c.ended {
		e := &c.ended[i]
		rows = append(rows, lostRow{
			session: session{Holder: e.replica, SessionInfo: e.SessionInfo},
			Until:   formatTime(e.Ended, b.at), Ago: formatBrief(b.at.Sub(e.Ended)), Why: cmp.Or(e.Error, "The agent ended it in order."),
		})
	}
	for _, s := range c.seen {
		if !slices.ContainsFunc(c.ended, func(e endedSession) bool { return e.replica == s.Holder }) {
			rows = append(rows, lostRow{session: s, Until: formatTime(c.seenAt, b.at) + " or later", Why: "The replica can't be asked, or has restarted."})
		}
	}
	return rows
}
