package e2e

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A madeFleet is three replicas with clusters that nobody runs: each is held by
// two replicas, some move bytes, and a few are in trouble.
type madeFleet struct {
	random   *rand.Rand
	began    time.Time
	calls    int
	clusters []madeCluster
	replicas []tunnel.ReplicaStatus
}

type madeCluster struct {
	name, trouble string
	busy          float64 // bytes a second
	trip          float64 // seconds
	sessions      []tunnel.SessionInfo
	homes         []int // of the sessions: indexes of replicas
}

// troubles are of some of the clusters, by their number.
var troubles = map[int]string{17: "down", 58: "down", 23: "failing", 91: "draining", 112: "alone", 140: "alone"}

// madeError is why the sessions of a cluster ended.
func madeError(cluster string) string {
	silence := errors.New("nothing came from the other end: i/o timeout")
	return (&tunnel.Error{Op: "connect", Cluster: cluster, Code: tunnel.CodeLost, Err: silence}).Error()
}

func newMadeFleet(n int, now time.Time) *madeFleet {
	f := &madeFleet{random: rand.New(rand.NewPCG(1, 2)), began: now}
	for i := range 3 {
		f.replicas = append(f.replicas, tunnel.ReplicaStatus{
			Name: fmt.Sprintf("tunnel-server-%d", i), Self: i == 0, Connected: true,
			Since: now.Add(-time.Duration(26+i) * time.Hour), Status: tunnel.Status{Ready: true},
		})
		if i > 0 {
			f.replicas[i].Address = fmt.Sprintf("10.4.1.%d:8443", 20+i)
		}
	}
	regions, stages := []string{"eu-west", "us-east", "ap-south"}, []string{"prod", "stage"}
	for i := range n {
		c := madeCluster{
			name: fmt.Sprintf("default/%s-%s-%d", regions[i%3], stages[i/3%2], i), trouble: troubles[i],
			trip: 0.004 + 0.09*float64(i%3) + 0.01*f.random.Float64(), homes: []int{i % 3, (i + 1) % 3},
		}
		if f.random.IntN(4) == 0 {
			c.busy = 2e6 * f.random.ExpFloat64()
		}
		if c.trouble == "alone" {
			c.homes = c.homes[:1]
		}
		agent := "k" + strings.ToLower(base32.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, f.random.Uint64())))[:15]
		for j := range c.homes {
			c.sessions = append(c.sessions, f.session(c.name, agent, i, j))
		}
		f.clusters = append(f.clusters, c)
	}
	return f
}

func (f *madeFleet) session(name, agent string, i, j int) tunnel.SessionInfo {
	return tunnel.SessionInfo{
		Cluster: name, Agent: agent, ID: fmt.Sprintf("%d-%d", i, j),
		Program: "causeway-agent v0.1.0", Remote: fmt.Sprintf("198.51.100.%d:%d", i%250, 40000+i), Since: f.began.Add(-time.Duration(f.random.IntN(90000)) * time.Second),
		Expires: f.began.Add(400 * time.Hour), Streams: f.random.IntN(4), DialCounts: tunnel.DialCounts{Dials: 100}, Recent: tunnel.DialCounts{Dials: 12},
	}
}

// next is the fleet a step of ten seconds later. The troubles begin with the
// 40th.
func (f *madeFleet) next() []tunnel.ReplicaStatus {
	f.calls++
	late := f.calls > 40
	for i := range f.replicas {
		f.replicas[i].Status.Clusters = nil
	}
	if late {
		f.replicas[1].Status.Failures = f.failures()
	}
	for i := range f.clusters {
		c := &f.clusters[i]
		for j := range c.sessions {
			f.move(c, &c.sessions[j], late)
		}
		for r := range f.replicas {
			status := tunnel.ClusterStatus{Cluster: c.name, Sessions: []tunnel.SessionInfo{}}
			for j, home := range c.homes {
				if home != r {
					continue
				}
				if late && c.trouble == "down" {
					status.LastError = madeError(c.name)
					status.Last = &tunnel.EndedSession{SessionInfo: c.sessions[j], Ended: f.began.Add(400 * time.Second), Error: status.LastError}
				} else {
					status.Sessions, status.Connected = append(status.Sessions, c.sessions[j]), !c.sessions[j].Draining
				}
			}
			if len(status.Sessions) > 0 || status.LastError != "" {
				f.replicas[r].Status.Clusters = append(f.replicas[r].Status.Clusters, status)
			}
		}
	}
	return append([]tunnel.ReplicaStatus(nil), f.replicas...)
}

// failures are those of the dials that somebody asked the second replica for.
func (f *madeFleet) failures() []tunnel.DialFailures {
	one := func(cluster int, code tunnel.Code, n uint64, ago time.Duration, target, caller, why string) tunnel.DialFailures {
		return tunnel.DialFailures{
			Cluster: f.clusters[cluster].name, Code: code, Reason: code.String(), Side: code.Side(), Count: n,
			Last: f.began.Add(595*time.Second - ago), Text: code.String() + why, Target: target, Caller: caller,
		}
	}
	return []tunnel.DialFailures{
		one(17, tunnel.CodeNoAgent, 12, 3*time.Second, "kubernetes.default.svc:443", "cluster-api", ": the replica at 10.4.1.22:8443 can't be asked: no answer in time"),
		one(23, tunnel.CodeRefused, 40, time.Second, "kubernetes.default.svc:443", "system:serviceaccount:capi-system:capi-manager", ": connection refused"),
		one(23, tunnel.CodeDenied, 71, 50*time.Second, "[2001:db8:85a3:1234:5678:8a2e:370:7334]:22", "annie.example@corp.example.com", ""),
		one(64, tunnel.CodeNotFound, 1, 200*time.Second, "prometheus.monitoring.svc.cluster.local:9090", "192.0.2.17:40122", ": no such host"),
	}
}

func (f *madeFleet) move(c *madeCluster, s *tunnel.SessionInfo, late bool) {
	s.RoundTrip = time.Duration(c.trip * (1 + 0.2*f.random.Float64()) * float64(time.Second))
	if c.busy > 0 {
		s.Streams = max(0, min(s.Streams+f.random.IntN(5)-2, 40))
		s.BytesIn += uint64(c.busy * 10 * f.random.Float64())
		s.BytesOut += uint64(c.busy * f.random.Float64())
		s.Dials += uint64(f.random.IntN(4))
	}
	if late && c.trouble == "failing" {
		s.Dials, s.Failed = s.Dials+2, s.Failed+1
		s.Recent = tunnel.DialCounts{Dials: 24, Failed: 12}
	}
	s.Draining = late && c.trouble == "draining"
}
