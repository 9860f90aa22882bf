package status

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// row shows a cluster in a line.
func (b *book) row(c *record) row {
	t := stateTexts[c.state]
	points := c.past.until(b.index())
	v := row{
		Name: c.name, URL: query{Cluster: c.name}.link(), Key: t.key, Sign: t.sign, Word: t.word, Problem: b.problem(c),
		Streams: strconv.Itoa(int(c.now.streams)), In: rate(c.now.in), Out: rate(c.now.out), Trip: trip(c.now.trip),
		Sparks: newSparks(&points),
	}
	if len(c.errors) > 0 {
		v.Error = c.errors[0].text
	}
	if len(c.held) == 0 {
		v.Homes = c.homes
	}
	v.Held, v.More = c.holds(b.at)
	return v
}

// holds returns where the agents' sessions are, as far as a row has room, and
// how many sessions more there are.
func (c *record) holds(now time.Time) (holds []hold, more int) {
	const room = 4
	for i := range c.held {
		if i == room {
			return holds, len(c.held) - room
		}
		s := &c.held[i]
		at := slices.IndexFunc(holds, func(h hold) bool { return h.Agent == s.Agent })
		if at < 0 {
			at = len(holds)
			holds = append(holds, hold{Agent: s.Agent})
		}
		holds[at].Places = append(holds[at].Places, place{s.replica, brief(now.Sub(s.Since)), s.leaving})
	}
	return holds, 0
}

// one is all that is known of a cluster.
type one struct {
	row
	Means    string
	Dials    string
	Errors   []saying
	Sessions []sessionRow
}

type saying struct{ Replica, Text string }

type sessionRow struct {
	Key, Agent, Replica, Remote string
	Since, For, Expires         string
	Leaving                     bool
	Streams                     int
	Dials, Failed               uint64
	In, Out, Trip               string
}

func (b *book) one(c *record) *one {
	v := &one{row: b.row(c), Means: stateTexts[c.state].means}
	dials, failed := c.past.dialed(b.index())
	v.Dials = fmt.Sprintf("%d, %d failed", dials, failed)
	for _, e := range c.errors {
		v.Errors = append(v.Errors, saying{e.replica, e.text})
	}
	for i := range c.held {
		s := &c.held[i]
		v.Sessions = append(v.Sessions, sessionRow{
			Key: s.replica + " " + s.ID, Agent: s.Agent, Replica: s.replica, Remote: s.Remote,
			Since: clock(s.Since, b.at), For: brief(b.at.Sub(s.Since)), Expires: clock(s.Expires, b.at), Leaving: s.leaving,
			Streams: s.Streams, Dials: s.Dials, Failed: s.Failed,
			In: size(float64(s.BytesIn)), Out: size(float64(s.BytesOut)), Trip: tripNow(s),
		})
	}
	return v
}

func tripNow(s *session) string {
	if s.RoundTrip <= 0 {
		return trip(unknown)
	}
	return trip(float32(s.RoundTrip.Seconds()))
}
