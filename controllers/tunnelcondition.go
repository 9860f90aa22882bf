package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// Reasons of the condition provider.ConditionTunnel.
const (
	ReasonTunnelConnected    = "Connected"
	ReasonTunnelDisconnected = "Disconnected"          // none is connected any more
	ReasonTunnelNever        = "NeverConnected"        // none was connected yet
	ReasonTunnelNoEndpoint   = "WaitingForEndpoint"    // without it there is no invitation
	ReasonTunnelNoInvitation = "NoInvitation"          // it can't be made, or its Secret not be written
	ReasonTunnelSilent       = "ReplicaDoesNotAnswer"  // which may have an agent; the status is Unknown
	reasonTunnelLabel        = "InvalidTunnelLabel"    // of an Event, as those below
	reasonInvitation         = "InvitationFailed"      // no invitation could be made
	reasonWriteFailed        = "TunnelWriteFailed"     // of a Secret
	reasonAdopted            = "TunnelSecretAdopted"   // after a restore
	reasonAgentRefused       = "TunnelAgentRefused"    // see Server.Hooks
	reasonCertificate        = "TunnelCertificateEnds" // an agent does not renew it
	reasonSSHKey             = "InvalidSSHKey"
	reasonPayload            = "SSHKeyFailed"
)

const (
	// lostDelay is how long a Cluster's agents have to come back.
	lostDelay = 5 * time.Second
	// countDelay is how long another number of agents, or another error of the last session,
	// has to last before it is shown.
	countDelay = 10 * time.Second
	// startDelay is how long agents and replicas have after the start of this process.
	startDelay = 30 * time.Second
	// certificateWarning is before the end of a certificate. An agent renews its own when a
	// third of the life is left.
	certificateWarning = 24 * time.Hour
)

// tunnelCondition returns what the condition is to be, given the one that there is, nil for
// none, and when to look again; 0 if something else leads to that. age is how long this
// process has looked.
func tunnelCondition(had *metav1.Condition, s tunnelState, cluster provider.Cluster, now time.Time, age time.Duration) (want metav1.Condition, wait time.Duration) {
	had = cmp.Or(had, &metav1.Condition{})
	want = metav1.Condition{Type: provider.ConditionTunnel, ObservedGeneration: cluster.Generation}
	wasConnected := had.Status == metav1.ConditionTrue
	late := max(lostDelay-now.Sub(s.changedAt), startDelay-age)
	switch {
	case s.seen.agents > 0:
		want.Status, want.Reason = metav1.ConditionTrue, ReasonTunnelConnected
	case wasConnected && late > 0:
		want = *had.DeepCopy()
		return want, late
	case wasConnected && s.seen.silent != "":
		want.Status, want.Reason = metav1.ConditionUnknown, ReasonTunnelSilent
	case had.Status != "" && s.seen.silent != "":
		want.Status, want.Reason = had.Status, had.Reason
	case s.seen.silent != "": // not ReasonTunnelSilent, which leads to "no more"
		want.Status, want.Reason = metav1.ConditionUnknown, ReasonTunnelNever
	case wasConnected, had.Reason == ReasonTunnelDisconnected, had.Reason == ReasonTunnelSilent:
		want.Status, want.Reason = metav1.ConditionFalse, ReasonTunnelDisconnected
	case s.problem != "":
		want.Status, want.Reason = metav1.ConditionFalse, ReasonTunnelNoInvitation
	case cluster.Endpoint.Host == "":
		want.Status, want.Reason = metav1.ConditionFalse, ReasonTunnelNoEndpoint
	default:
		want.Status, want.Reason = metav1.ConditionFalse, ReasonTunnelNever
	}
	want.LastTransitionTime = had.LastTransitionTime
	if had.Status != want.Status || had.LastTransitionTime.IsZero() {
		want.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	}
	want.Message = printable.Text(tunnelMessage(want, s, cluster.Name), maxNote)
	if recount := countDelay - now.Sub(s.changedAt); want.Status == had.Status && want.Reason == had.Reason && want.Message != had.Message && recount > 0 && recount <= countDelay {
		want.Message = had.Message
		return want, recount
	}
	return want, 0
}

// tunnelMessage says since when it is so, and what a person has to know. It changes only
// with the state.
func tunnelMessage(c metav1.Condition, s tunnelState, cluster string) string {
	seen := s.seen
	since := c.LastTransitionTime.UTC().Format("2006-01-02 15:04:05 UTC")
	text := ""
	switch c.Reason {
	case ReasonTunnelConnected:
		text = fmt.Sprintf("since %s; %d agents are connected", since, seen.agents)
		if seen.agents == 1 {
			text = fmt.Sprintf("since %s; one agent is connected", since)
		}
	case ReasonTunnelNever:
		if seen.silent != "" {
			return fmt.Sprintf("since %s; no agent has connected yet, as far as is known: %s", since, seen.silent)
		}
		text = fmt.Sprintf("since %s; no agent has connected yet: the Secret %s has the invitation, which a KubeadmConfig puts onto machines", since, cluster+provider.SuffixTunnelAgent)
	case ReasonTunnelNoEndpoint:
		text = fmt.Sprintf("since %s; the invitation waits for the Cluster's spec.controlPlaneEndpoint", since)
	case ReasonTunnelNoInvitation:
		text = fmt.Sprintf("since %s; machines can't get an agent: %s", since, s.problem)
	case ReasonTunnelDisconnected:
		text = fmt.Sprintf("since %s; no agent is connected", since)
	case ReasonTunnelSilent:
		text = fmt.Sprintf("since %s; no agent is known, and %s", since, seen.silent)
	}
	if seen.lastError != "" && seen.agents == 0 {
		text += "; the last session ended with: " + seen.lastError
	}
	return text
}

// reconcileCondition writes the condition and tells of a change. It returns when to look
// again; 0 if something else leads to that.
func (t *tunnelRun) reconcileCondition(ctx context.Context, u *unstructured.Unstructured, cluster provider.Cluster) (time.Duration, error) {
	key, now := nameOf(u), t.now()
	age, looked := t.states.age(now)
	if !looked {
		return 0, nil // the first look leads here again
	}
	state := t.states.get(key)
	had := clusterapi.Condition(u, provider.ConditionTunnel)
	if written := state.condition.conditionAfter(u.GetResourceVersion()); written != nil {
		had = written // the cache is late
	}
	t.warnCertificate(u, state.seen, now)
	want, wait := tunnelCondition(had, state, cluster, now, age)
	if had != nil && sameCondition(*had, want) {
		return wait, nil
	}
	if err := checkScope(ctx, t.live, u); err != nil {
		return 0, err
	}
	version, err := applyCondition(ctx, t.writer, u, &want, client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // the Cluster is gone, or another one
	}
	t.writer.counts.count(conditionWrites, err)
	if err != nil {
		return 0, fmt.Errorf("condition of Cluster %s: %w", key, err)
	}
	log.FromContext(ctx).Info("wrote the condition", "status", want.Status, "reason", want.Reason)
	t.states.change(key, func(s *tunnelState) { s.condition = &conditionWrite{want, version} })
	if had == nil || had.Status != want.Status {
		t.tellTransition(u, had, want)
	}
	return wait, nil
}

// tellTransition tells of a connection that came or went, each once in eventWindow however
// often that happens.
func (t *tunnelRun) tellTransition(u *unstructured.Unstructured, had *metav1.Condition, now metav1.Condition) {
	kind := corev1.EventTypeNormal
	switch {
	case now.Reason == ReasonTunnelConnected:
	case now.Reason == ReasonTunnelDisconnected && had != nil, now.Reason == ReasonTunnelSilent && had != nil:
		kind = corev1.EventTypeWarning
	default:
		return
	}
	if t.events.isNew(string(u.GetUID()), now.Reason, t.now()) {
		t.events.recorder.Event(u, kind, "Tunnel"+now.Reason, printable.Text(now.Message, maxNote))
	}
}

// warnCertificate tells of an agent that does not renew its certificate.
func (t *tunnelRun) warnCertificate(u *unstructured.Unstructured, seen tunnelSeen, now time.Time) {
	if seen.expires.IsZero() || seen.expires.Sub(now) > certificateWarning {
		return
	}
	t.events.tell(u, corev1.EventTypeWarning, reasonCertificate,
		"the certificate of an agent ends at "+seen.expires.Format("2006-01-02 15:04:05 UTC")+", and the agent has not renewed it: see its log", "")
}

// removeCondition takes the condition away, if the Cluster has it.
func (t *tunnelRun) removeCondition(ctx context.Context, u *unstructured.Unstructured) error {
	if clusterapi.Condition(u, provider.ConditionTunnel) == nil {
		return nil
	}
	_, err := applyCondition(ctx, t.writer, u, nil, client.ForceOwnership)
	if apierrors.IsConflict(err) {
		err = nil
	}
	t.writer.counts.count(conditionWrites, err)
	return client.IgnoreNotFound(err)
}
