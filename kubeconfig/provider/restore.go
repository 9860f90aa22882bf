package provider

import (
	"bytes"
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig"
)

// acceptedRoute returns the route that was accepted last, with the present server.
// Of other programs' changes only the server is kept; it is the natural one if the route
// rewrites the server.
func (d *decider) acceptedRoute() route {
	current := d.base.current
	current.Endpoint = d.endpointOf(current.Server)
	held := d.heldRoute(current)
	if a := d.records.applied; a != nil && (a.leadsThrough() || held.ProxyURL == "" || d.direct) {
		return d.withServer(*a, current)
	}
	return held
}

// heldRoute returns the route that the target has now.
func (d *decider) heldRoute(current route) route {
	if !d.follows || d.target.doc == nil {
		return current
	}
	held := d.target.doc.current
	if held.Server != current.Server {
		held.Natural = current.Server
	}
	return held
}

func (d *decider) withServer(r, current route) route {
	switch {
	case r.Server == current.Server:
	case r.Natural == "":
		r.Server, r.Endpoint = current.Server, current.Endpoint
	default:
		r.Natural, r.Endpoint = current.Server, current.Endpoint
	}
	return r
}

// restoreRoute writes at once what needs no probe: the accepted route if it was lost,
// credentials past half of their life, the mark of adoption.
func (d *decider) restoreRoute(r route) (done bool, err error) {
	value, err := d.base.withRoute(r)
	adopt := d.settings.Mode == Own && !d.managed
	rotate := err == nil && len(d.ca.key) > 0 && d.renewalDue()
	if rotate {
		value, err = d.replaceIdentity(value, identity{sign: true})
	}
	if err != nil || !adopt && !rotate && bytes.Equal(value, d.target.value()) {
		return false, err
	}
	if adopt {
		d.acceptRoute(r)
		d.tell(corev1.EventTypeNormal, ReasonAdopted, "the Secret "+d.target.name+" is kept up to date from now on")
	}
	if rotate {
		d.tell(corev1.EventTypeNormal, ReasonRotated, "the client certificate in the Secret "+d.target.name+" was renewed")
	}
	switch {
	case d.cleared:
		d.tell(corev1.EventTypeWarning, ReasonSecretRefused, "the credentials of the Secret "+d.settings.RouteSecret+" were taken out of the Secret "+d.target.name+": they are for another proxy, or another Cluster")
	case !d.follows && !d.base.current.sameEntry(r):
		d.tell(corev1.EventTypeNormal, ReasonReapplied, "the Secret "+d.target.name+" had lost the route, and has it again")
	}
	d.write(value)
	return true, nil
}

// acceptRoute records r as the accepted route. The first call also records the original
// route.
func (d *decider) acceptRoute(r route) {
	if d.records.original == nil && !d.records.Created && !d.follows {
		original := d.base.current
		original.Endpoint = d.endpointOf(original.Server)
		d.records.original = &original
	}
	if d.records.applied = &r; d.records.State == "" {
		d.records.State = StateReady
	}
}

// How long a lost route waits to be written again: after the first time, at most, and how long it
// must have stood to begin anew.
const (
	firstRepairDelay = 10 * time.Second
	maxRepairDelay   = 2 * time.Minute
	repairReset      = 10 * time.Minute
)

// mayRepair reports whether a write that is no switch to another route may be made now. Somebody
// has undone the last one: who does that again and again is not to be outrun. If not now, that is
// all that the plan says.
func (d *decider) mayRepair() bool {
	r := &d.records
	followed := r.Followed
	if d.follows {
		r.Followed = d.first.version()
	}
	switch {
	case !r.acceptsStored():
		r.Repairs, r.Repaired = 0, ""
		return true
	case d.follows && followed != r.Followed: // nobody has undone anything
		return true
	}
	if !d.target.isRepaired(*r) {
		if left := d.repairDelay(); left > 0 {
			d.events, d.probes, d.after = nil, nil, 0
			d.say(d.rivalVerdict())
			d.scheduleAfter(left)
			return false
		}
		if d.config.Now.Sub(r.RepairedAt) >= repairReset {
			r.Repairs = 0
		}
		r.Repairs++
		r.RepairedAt, r.Repaired = d.config.Now.UTC(), d.target.version()
	}
	if r.Repairs > 1 {
		d.say(d.rivalVerdict())
	}
	return true
}

// isRepaired reports whether r has counted the repair of the Secret as it is.
func (t *stored) isRepaired(r records) bool { return r.Repaired == t.version() }

// repairDelay returns how long the next repair has to wait.
func (d *decider) repairDelay() time.Duration {
	since := d.config.Now.Sub(d.records.RepairedAt)
	if d.records.Repairs == 0 || since >= repairReset {
		return 0
	}
	delay := min(firstRepairDelay<<min(d.records.Repairs-1, 10), maxRepairDelay)
	return min(delay-since, delay) // the clock may have been set back
}

// rivalVerdict names the program that wrote the kubeconfig last, unless it is the provider itself.
func (d *decider) rivalVerdict() verdict {
	who := cmp.Or(dataWriter(orEmpty(d.target.secret)), "another program")
	if who == d.config.FieldOwner() {
		who = "another program"
	}
	advice := "To have it always there, run the webhook of the component route-admission; or leave that Secret alone, with " + AnnotationMode + " " + string(Secondary)
	if d.target.name != d.first.name {
		advice = "Stop that program, or name another Secret in " + AnnotationSecondary
	}
	return notReady(ReasonRivalWriter, who+" writes the Secret "+d.target.name+" again and again without the route, which is put back at most once in ten seconds, and less and less often. "+advice)
}

// dataWriter returns the name of the program that wrote the kubeconfig last, as the API server
// notes it; empty if it is not known.
func dataWriter(s *corev1.Secret) (name string) {
	var last time.Time
	for _, f := range s.ManagedFields {
		if f.Time != nil && !f.Time.Time.Before(last) && clusterapi.WritesValue(f) {
			name, last = f.Manager, f.Time.Time
		}
	}
	return printable.Text(name, 63)
}

// RestoreRoute is for a webhook that changes kubeconfig Secrets at admission: somebody stores
// written, in place of old or, if old is nil, as a new Secret. memory is the Secret with its
// [RecordsName]; nil if there is none. If written has lost the accepted route, RestoreRoute returns
// the kubeconfig to store instead, and true. So the route is never away, not even until the
// provider writes it again.
//
// Only the route is changed: server, proxy-url, tls-server-name and our extension, by the rules that
// [Plan] has for a lost route. Credentials, CA and all else are written's. Whoever asks the webhook
// need not be the API server: of the proxy's credentials the answer has only those that old has.
// Without these the kubeconfig leads nowhere until the provider adds them.
//
// There is nothing to do, and the result is false, if
//
//   - the provider of config.Name manages neither, or hands the Secret back;
//   - it is the provider's own write: written has a newer route than old and memory;
//   - the kubeconfig has the accepted route, or can't be read.
//
// memory may be older than the provider's last write: then old's route counts. It reads its
// arguments only, and is safe for concurrent use. It knows nothing of the Cluster: whoever wants to
// change the route by hand sets [AnnotationMode] to off first.
func RestoreRoute(old, written, memory *corev1.Secret, config Config) ([]byte, bool) {
	name, r := config.providerName(), readRecords(old, memory)
	by := memoryManager(memory)
	if memory == nil && (managerOf(written) != "" || revisionOf(old) > 0) { // records of before, or a cache that is late
		by = managerOf(old)
	}
	applied := written.Data[DataApplied] // an earlier version's own write changes it
	if by != name || cmp.Or(managerOf(written), name) != name || revisionOf(written) > r.Revision ||
		len(applied) > 0 && (old == nil || !bytes.Equal(old.Data[DataApplied], applied)) {
		return nil, false
	}
	base, err := parseDocument(written.Data[kubeconfig.SecretKey])
	if err != nil {
		return nil, false
	}
	var had route
	if old != nil {
		if before, err := parseDocument(old.Data[kubeconfig.SecretKey]); err == nil {
			had = before.current
		}
	}
	if had.Server != "" && revisionOf(old) > decodeRecords(memory).Revision {
		late := had
		if had.ProxyURL == "" && had.Server != base.current.Server {
			late.Natural = base.current.Server
		}
		r.applied = &late
	}
	restored := (&decider{state: &state{}, decision: decision{records: r}, base: base}).acceptedRoute()
	if restored.sameEntry(base.current) {
		return nil, false
	}
	if restored.ProxyURL != had.ProxyURL {
		restored = restored.withoutUser()
	}
	if !bytes.Equal(restored.Extension, had.Extension) {
		restored.Extension = nil
	}
	value, err := base.withRoute(restored)
	if err != nil || bytes.Equal(value, base.bytes) {
		return nil, false
	}
	return value, true
}
