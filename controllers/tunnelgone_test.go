package controllers_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// settledOne returns a bed with a running manager, and the Cluster a/one with all that it gets.
func settledOne(t *testing.T) (*tunnelBed, apitest.Key) {
	b := newTunnelBed(t)
	one := b.labelled("one")
	b.runTunnel(t)
	b.settled("one")
	return b, one
}

// movedAway returns one where a/one has gone while it was paused, and the name of its record.
func movedAway(t *testing.T) (b *tunnelBed, one, record apitest.Key) {
	b, one = settledOne(t)
	record = b.recordKey("a/one")
	b.Change(one, pause(true))
	b.Remove(one)
	b.Until(t, "the mark", func() bool { return b.Get(record) != nil && b.value(record, "moved") != "" })
	return b, one, record
}

func pause(on bool) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { unstructured.SetNestedField(u.Object, on, "spec", "paused") }
}

// setPausedOne makes the Cluster a/one, or another of this name, paused.
func (b *tunnelBed) setPausedOne() {
	c := cluster("a", "one", nil)
	c["metadata"].(map[string]any)["labels"] = map[string]any{provider.LabelTunnel: "true"}
	unstructured.SetNestedField(c, true, "spec", "paused")
	b.Set("clusters", c)
}

// isRevoked reports whether the agents of a/one were revoked.
func (b *tunnelBed) isRevoked() bool {
	return b.read(func() bool { return b.revoked["a/one"] > 0 })
}

// untilEnded waits until nothing is left of a/one, the only one.
func (b *tunnelBed) untilEnded() {
	b.t.Helper()
	b.Until(b.t, "the end", func() bool { return b.Get(agentSecret("one")) == nil && len(b.records()) == 0 })
}

// TestTunnelGone: what a Cluster has left is ended when it goes, however long the server
// is away, and a day later for one that was moved.
func TestTunnelGone(t *testing.T) {
	t.Parallel()
	t.Run("while the cache of Secrets is late", func(t *testing.T) {
		b := newTunnelBed(t)
		b.runTunnel(t)
		b.Hold("secrets", true)
		one := b.labelled("one")
		b.settled("one")
		written := b.Wrote("PUT secrets")
		b.Change(one, func(u *unstructured.Unstructured) {
			unstructured.SetNestedField(u.Object, "192.0.2.9", "spec", "controlPlaneEndpoint", "host")
		})
		b.Until(t, "a write", func() bool { return b.Wrote("PUT secrets") > written })
		b.Remove(one)
		b.untilEnded()
		if b.revoked["a/one"] != 1 {
			t.Errorf("got %v revoked, want a/one once", b.revoked)
		}
	})
	t.Run("while the store is away", func(t *testing.T) {
		b, one := settledOne(t)
		b.change(func() { b.fail = errAway })
		b.Remove(one) // nothing holds it up
		b.change(func() { b.fail = nil })
		b.untilEnded()
	})
	t.Run("by a leader whose record is old", func(t *testing.T) {
		b, one := settledOne(t)
		tried := make(chan struct{}, 1)
		b.SetFault(func(r *http.Request) int {
			if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/system/secrets/") {
				return 0
			}
			select {
			case tried <- struct{}{}:
			default:
			}
			return http.StatusConflict
		})
		b.Remove(one)
		<-tried
		<-tried
		if b.isRevoked() {
			t.Error("revoked by a record that another leader has written since")
		}
		b.SetFault(nil)
		b.untilEnded()
	})
	t.Run("while nobody looks", func(t *testing.T) {
		b := newTunnelBed(t)
		one := b.labelled("one")
		stop := b.runTunnel(t)
		b.settled("one")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b.Remove(one)
		b.labelled("two")
		b.runTunnel(t)
		b.settled("two")
		if b.isRevoked() {
			t.Error("revoked at the start: what is restored may come later")
		}
		b.change(func() { b.ahead = 11 * time.Minute })
		b.Change(b.recordKey("a/one"), func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"look": ""}) })
		b.Until(t, "the end", func() bool { return b.Get(agentSecret("one")) == nil && len(b.records()) == 1 })
	})
	t.Run("moved, and back while it is paused", func(t *testing.T) {
		b, one, record := movedAway(t)
		b.setPausedOne()
		b.moveSecret(one)
		b.Until(t, "the mark's end", func() bool { return b.value(record, "moved") == "" })
	})
	t.Run("moved, and made again without its Secrets", func(t *testing.T) {
		b, one, record := movedAway(t)
		b.setPausedOne() // before the Secrets are collected
		b.labelled("two")
		b.settled("two")
		if b.isRevoked() {
			t.Error("revoked while it is paused: its Secrets may come")
		}
		b.Remove(agentSecret("one"))
		b.Remove(routeOf("one"))
		b.Change(one, pause(false))
		b.Until(t, "the end", b.isRevoked)
		b.settled("one")
		if got := b.value(record, "uid"); got != string(b.Get(one).GetUID()) {
			t.Errorf("got the record of %s, want one of the new Cluster", got)
		}
	})
	t.Run("moved, and another is paused for ever", func(t *testing.T) {
		b, one, record := movedAway(t)
		b.setPausedOne()
		b.labelled("two")
		b.settled("two")
		if b.isRevoked() {
			t.Error("revoked within the day")
		}
		b.change(func() { b.ahead, b.fail = 25*time.Hour, errAway })
		b.Change(record, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"look": ""}) })
		b.Until(t, "the beginning of the end", func() bool { return b.value(record, "ending") != "" })
		b.moveSecret(one) // too late
		b.Change(one, pause(false))
		b.change(func() { b.fail = nil })
		b.Until(t, "the end", b.isRevoked)
		b.settled("one")
	})
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("moved, and back: %t", back), func(t *testing.T) {
			b, one, record := movedAway(t)
			look := func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"look": b.clock().String()}) }
			b.change(func() { b.ahead = 23 * time.Hour })
			b.Change(record, look)
			if back {
				b.setPausedOne()
				b.moveSecret(one)
				b.Change(one, pause(false))
				b.Until(t, "the mark's end", func() bool { return b.value(record, "moved") == "" })
				b.change(func() { b.ahead = 25 * time.Hour })
			}
			b.labelled("two")
			b.settled("two") // the first was looked at, too
			if b.isRevoked() || b.Get(agentSecret("one")) == nil {
				t.Error("revoked, or the Secret deleted: clusterctl does that")
			}
			if back {
				b.Remove(one)
			} else {
				b.change(func() { b.ahead = 25 * time.Hour })
				b.Change(record, look)
			}
			b.Until(t, "the end", func() bool { return b.Get(record) == nil && b.isRevoked() })
		})
	}
	for _, tt := range []struct {
		name             string
		paused, restored bool
		ends             bool
	}{
		{"made again while nobody looks", false, false, true},
		{"made again while nobody looks, and paused", true, false, false},
		{"restored with its record", false, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newTunnelBed(t)
			one := b.labelled("one")
			stop := b.runTunnel(t)
			b.settled("one")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			record := b.recordKey("a/one")
			had := b.Get(record)
			b.Remove(one)
			b.setPausedOne()
			if tt.restored {
				b.Remove(record)
				b.Set("secrets", had.Object)
			}
			b.Change(one, pause(tt.paused))
			b.runTunnel(t)
			b.labelled("two")
			b.settled("two")
			if tt.ends {
				b.Until(t, "the end", b.isRevoked)
			}
			b.Change(one, pause(false))
			if tt.paused {
				b.Until(t, "the end", b.isRevoked)
			}
			b.Until(t, "a record of the new one", func() bool {
				u := b.Get(record)
				return u != nil && b.value(record, "uid") == string(b.Get(one).GetUID()) && b.value(record, "self") == string(u.GetUID())
			})
			if tt.restored && b.isRevoked() {
				t.Error("revoked: the record was restored, too")
			}
		})
	}
	t.Run("paused once it is being deleted", func(t *testing.T) {
		b, one := settledOne(t)
		b.Change(one, func(u *unstructured.Unstructured) {
			unstructured.SetNestedField(u.Object, "2026-01-02T15:04:05Z", "metadata", "deletionTimestamp")
		})
		b.Change(one, pause(true))
		b.Remove(one)
		b.untilEnded()
	})
	t.Run("made again, paused, in a gap of the watch", func(t *testing.T) {
		b, one := settledOne(t)
		b.Gap(func() {
			b.Remove(one)
			b.setPausedOne()
		})
		b.untilEnded()
		b.Change(one, pause(false))
		b.settled("one")
	})
	t.Run("the label taken away while the store is away, and set again", func(t *testing.T) {
		b, one := settledOne(t)
		record := b.recordKey("a/one")
		label := func(value string) {
			b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{provider.LabelTunnel: value}) })
		}
		b.change(func() { b.fail = errAway })
		label("false")
		b.Until(t, "the beginning of the end", func() bool { return b.value(record, "ending") != "" })
		label("true")
		b.change(func() { b.fail = nil })
		b.Until(t, "the end", b.isRevoked)
		b.settled("one")
	})
	for _, tt := range []struct {
		name        string
		otherLeader bool // has done it since
	}{{"the label taken away and set again before anybody looks", false}, {"as before, and another leader looks", true}} {
		t.Run(tt.name, func(t *testing.T) {
			b, one := settledOne(t)
			b.Hold("clusters", true)
			for _, labels := range []map[string]string{nil, {provider.LabelTunnel: "true"}} {
				b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(labels) })
			}
			if tt.otherLeader {
				b.setData(b.recordKey("a/one"), "version", b.Get(one).GetResourceVersion())
			}
			b.Hold("clusters", false)
			if !tt.otherLeader {
				b.Until(t, "the end", b.isRevoked)
			}
			b.labelled("two")
			b.settled("one", "two")
			if b.isRevoked() == tt.otherLeader {
				t.Errorf("got revoked: %t", b.isRevoked())
			}
		})
	}
	t.Run("made again, and another leader looks first", func(t *testing.T) {
		b, one := settledOne(t)
		record := b.recordKey("a/one")
		b.Hold("clusters", true) // this one was frozen: its watch of Secrets is faster
		b.Remove(one)
		b.labelled("one")
		b.setData(record, "uid", string(b.Get(one).GetUID()))
		b.setData(routeOf("one"), provider.KeyPassword, "wrong") // leads to a look
		held := b.Get(record).Object["data"]
		b.untilAsked()
		if now := b.Get(record); now == nil || !reflect.DeepEqual(now.Object["data"], held) || b.isRevoked() {
			t.Errorf("got the record %v, want that of the new Cluster, and nobody revoked", now)
		}
	})
	t.Run("being deleted", func(t *testing.T) {
		b, one := settledOne(t)
		b.Change(one, func(u *unstructured.Unstructured) {
			unstructured.SetNestedField(u.Object, "2026-01-02T15:04:05Z", "metadata", "deletionTimestamp")
		})
		b.connect("a/one", "x")
		b.untilCondition(one, "True Connected")
		if b.isRevoked() || b.Get(agentSecret("one")) == nil {
			t.Error("ended before the Cluster is gone: others may have to reach it")
		}
	})
}

// setData is a change of a Secret by another.
func (b *bed) setData(key apitest.Key, name, value string) {
	b.Change(key, func(u *unstructured.Unstructured) {
		unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte(value)), "data", name)
	})
}

// moveSecret has the Cluster own the Secret with the invitation, as clusterctl move does.
func (b *tunnelBed) moveSecret(cluster apitest.Key) {
	uid := b.Get(cluster).GetUID()
	b.Change(agentSecret(cluster.Name), func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: cluster.Name, UID: uid}})
	})
}

// recordKey is the name of a Cluster's record.
func (b *tunnelBed) recordKey(cluster string) apitest.Key {
	for _, u := range b.List("secrets") {
		key := apitest.Named("secrets", "system", u.GetName())
		if u.GetNamespace() == "system" && b.value(key, "cluster") == cluster {
			return key
		}
	}
	return apitest.Key{}
}
