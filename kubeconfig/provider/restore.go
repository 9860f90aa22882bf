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
func (p *planner) acceptedRoute() route {
	current := p.base.current
	current.Endpoint = p.endpointOf(current.Server)
	held := p.heldRoute(current)
	if a := p.records.applied; a != nil && (a.leadsThrough() || held.ProxyURL == "" || p.direct) {
		return p.withServer(*a, current)
	}
	return held
}

// heldRoute returns the route that the target has now.
func (p *planner) heldRoute(current route) route {
	if !p.follows {
		return current
	}
	own, err := parseDocument(p.target.Data[kubeconfig.SecretKey])
	if err != nil {
		return current
	}
	held := own.current
	if held.Server != current.Server {
		held.Natural = current.Server
	}
	return held
}

func (p *planner) withServer(r, current route) route {
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
func (p *planner) restoreRoute(r route) bool {
	value, err := p.base.withRoute(r)
	adopt := p.settings.Mode == Own && !p.managed
	rotate := err == nil && p.rotationDue()
	if rotate {
		value, err = p.replaceIdentity(value, identity{sign: true})
	}
	if err != nil {
		p.setCondition(notReady(ReasonCorrupted, err.Error()))
		return true
	}
	if !adopt && !rotate && bytes.Equal(value, p.target.Data[kubeconfig.SecretKey]) {
		return false
	}
	if adopt {
		p.acceptRoute(r)
		p.addEvent(corev1.EventTypeNormal, ReasonAdopted, "the Secret "+p.target.Name+" is kept up to date from now on")
	}
	if rotate {
		p.addEvent(corev1.EventTypeNormal, ReasonRotated, "the client certificate in the Secret "+p.target.Name+" was renewed")
	}
	switch {
	case p.cleared:
		p.addEvent(corev1.EventTypeWarning, ReasonSecretRefused, "the credentials of the Secret "+p.settings.RouteSecret+" were taken out of the Secret "+p.target.Name+": they are for another proxy, or another Cluster")
	case !p.follows && !p.base.current.sameEntry(r):
		p.addEvent(corev1.EventTypeNormal, ReasonReapplied, "the Secret "+p.target.Name+" had lost the route, and has it again")
	}
	p.updateTarget(value)
	return true
}

// acceptRoute records r as the accepted route. The first call also records the original
// route.
func (p *planner) acceptRoute(r route) {
	if p.records.original == nil && !p.records.Created && !p.follows {
		original := p.base.current
		original.Endpoint = p.endpointOf(original.Server)
		p.records.original = &original
	}
	if p.records.applied = &r; p.records.State == "" {
		p.records.State = StateReady
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
func (p *planner) mayRepair() bool {
	r := &p.records
	if !p.acceptsStored() {
		r.Repairs = 0
		return true
	}
	left := p.repairDelay()
	if left > 0 {
		p.action = Action{}
		p.setCondition(p.rivalVerdict())
		p.scheduleAfter(left)
		return false
	}
	if p.config.Now.Sub(r.RepairedAt) >= repairReset {
		r.Repairs = 0
	}
	r.Repairs++
	r.RepairedAt = p.config.Now.UTC()
	if r.Repairs > 1 {
		p.setCondition(p.rivalVerdict())
	}
	return true
}

// repairDelay returns how long the next repair has to wait.
func (p *planner) repairDelay() time.Duration {
	since := p.config.Now.Sub(p.records.RepairedAt)
	if p.records.Repairs == 0 || since >= repairReset {
		return 0
	}
	delay := min(firstRepairDelay<<min(p.records.Repairs-1, 10), maxRepairDelay)
	return min(delay-since, delay) // the clock may have been set back
}

// rivalVerdict names the program that wrote the kubeconfig last.
func (p *planner) rivalVerdict() verdict {
	who := "another program"
	if p.target != nil {
		who = cmp.Or(dataWriter(p.target), who)
	}
	return notReady(ReasonRivalWriter, who+" writes the Secret "+p.targetName()+" again and again without the route, which is put back at most once in ten seconds, and less and less often. "+
		"To have it always there, run the webhook of the component route-admission; or leave that Secret alone, with "+AnnotationMode+" "+string(Secondary))
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
