package controllers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/owner"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
)

const (
	// lookInterval is how often each Cluster is looked at if nothing happens: tickets may
	// have been revoked. It costs no request, see checkInterval.
	lookInterval = time.Minute
	// goneDelay is how long a Cluster must have been missing that this process has never
	// seen: the objects of a restored cluster come one after the other.
	goneDelay = 10 * time.Minute
	// movedDelay is how long the agents of a paused Cluster that is gone have: clusterctl
	// move takes minutes, and the server may have to be moved, too.
	movedDelay = 24 * time.Hour
)

// Keys of a record.
const (
	recordCluster = "cluster" // namespace/name
	recordToken   = "token"   // the hash of the last token, in hex
	recordUID     = "uid"     // the Cluster's: what is deleted once it is gone has that owner
	recordVersion = "version" // the Cluster's resourceVersion when the record was made
	recordSelf    = "self"    // the record's own UID: one that was restored has another
	recordEnding  = "ending"  // the tunnel is being ended
	recordMoved   = "moved"   // when the Cluster went while it was paused; without it, it did not
)

// reconcileCluster does what one Cluster needs.
func (t *tunnelRun) reconcileCluster(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	u := namedCluster(t.kind, key, "")
	err := t.mgr.GetCache().Get(ctx, key, u)
	switch {
	case !isWatched(t.Namespaces, key.Namespace):
		t.states.forgetShown(key)
		return reconcile.Result{}, nil
	case apierrors.IsNotFound(err):
		return t.reconcileGone(ctx, u)
	case err != nil:
		return reconcile.Result{}, err
	}
	cluster, endpointErr := provider.ReadCluster(u, nil)
	record, err := t.readRecord(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	shown, _ := t.states.shownOf(key, record != nil)
	if shown.uid != u.GetUID() {
		return reconcile.Result{}, errCacheLate
	}
	ends, wait, err := t.endOfFormer(ctx, u, record, shown.ended)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case ends && wait > 0:
		return reconcile.Result{RequeueAfter: wait + time.Second}, nil
	case ends: // then the record's deletion leads here
		return reconcile.Result{}, t.endTunnel(ctx, t.formerCluster(key, record), u, record)
	}
	label, off := tunnelLabel(u)
	off = off || isEnding(record, shown)
	if off && record == nil {
		t.states.forget(key)
		return reconcile.Result{}, nil
	}
	t.states.track(key, t.now())
	switch {
	case cluster.Paused && record != nil && record.Data[recordMoved] != nil: // it is back, and may go again
		return reconcile.Result{}, t.takeRecord(ctx, u, record.DeepCopy())
	case cluster.Paused:
		return reconcile.Result{}, nil
	case off:
		return reconcile.Result{}, t.endTunnel(ctx, u, u, record)
	case label != "true":
		t.events.tell(u, corev1.EventTypeWarning, reasonTunnelLabel,
			fmt.Sprintf("the label %s is %q: want true, or false. Nothing is changed", provider.LabelTunnel, printable.Text(label, 63)), "")
		return reconcile.Result{}, nil
	case endpointErr != nil:
		cluster.Endpoint = kubeconfig.Endpoint{}
		t.setProblem(key, t.tellWriteFailed(u, provider.SuffixTunnelAgent, endpointErr.Error()))
		if err := t.dropFiles(ctx, u); err != nil {
			return reconcile.Result{}, err
		}
	case cluster.Endpoint.Host == "":
		t.setProblem(key, "")
	}
	return t.reconcileLabelled(ctx, u, cluster, record)
}

// tunnelLabel returns the label's value, and whether the Cluster is to have no tunnel.
func tunnelLabel(u *unstructured.Unstructured) (label string, off bool) {
	label, labelled := u.GetLabels()[provider.LabelTunnel]
	return label, !labelled || label == "false"
}

// isEnding reports whether the tunnel of a record has to end even if the Cluster has the label:
// the label was taken away, and set again before the tunnel had ended. If it was taken away before
// the record was made, another leader has ended that tunnel.
func isEnding(record *corev1.Secret, shown shownCluster) bool {
	return record != nil && (record.Data[recordEnding] != nil ||
		clusterapi.IsOlder(cmp.Or(string(record.Data[recordVersion]), "0"), shown.off))
}

// reconcileLabelled keeps what belongs to a Cluster with the label. One thing that can't be
// done does not hold up the others.
func (t *tunnelRun) reconcileLabelled(ctx context.Context, u *unstructured.Unstructured, cluster provider.Cluster, record *corev1.Secret) (reconcile.Result, error) {
	var err error
	var full bool
	if !cluster.Deleting && record == nil {
		if full, err = t.tooManyEnded(ctx, u); err == nil && !full {
			record, err = t.createRecord(ctx, u)
		}
	} else if !cluster.Deleting && !isRecordOf(u, record) { // moved, or restored
		record = record.DeepCopy()
		err = t.takeRecord(ctx, u, record)
	}
	if err == nil && !full {
		err = errors.Join(t.reconcileAgent(ctx, u, cluster, record), t.reconcileRoute(ctx, u, cluster), t.reconcileKey(ctx, u, cluster))
	}
	next := min(lookInterval, t.TicketLife/8)
	wait, conditionErr := t.reconcileCondition(ctx, u, cluster) // it tells of the problem of an invitation, too
	if wait > 0 {
		next = min(next, wait)
	}
	if err = errors.Join(conditionErr, err); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: spreadTime(next)}, nil
}

// reconcileGone ends what a Cluster has left that is gone. u has only its name.
func (t *tunnelRun) reconcileGone(ctx context.Context, u *unstructured.Unstructured) (reconcile.Result, error) {
	key := nameOf(u)
	record, err := t.readRecord(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	shown, seen := t.states.shownOf(key, record != nil)
	switch {
	case shown.uid != "":
		return reconcile.Result{}, errCacheLate
	case record == nil:
		t.states.forget(key)
		t.states.forgetShown(key)
		return reconcile.Result{}, nil
	}
	var wait time.Duration
	switch {
	case shown.ended, isEnding(record, shown):
	case record.Data[recordMoved] != nil:
		wait = t.movedWait(record)
	case seen:
		record = record.DeepCopy()
		record.Data = mergeInto(record.Data, map[string][]byte{recordMoved: []byte(t.now().UTC().Format(time.RFC3339))})
		if err := t.writeRecord(ctx, u, record); err != nil {
			return reconcile.Result{}, err
		}
		log.FromContext(ctx).Info("the paused Cluster is gone: its agents stay for now", "delay", movedDelay)
		t.states.forget(key)
		wait = movedDelay
	}
	if age, _ := t.states.age(t.now()); !seen {
		wait = max(wait, goneDelay-age)
	}
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait + time.Second}, nil
	}
	return reconcile.Result{}, t.endTunnel(ctx, t.formerCluster(key, record), u, record)
}

// movedWait returns how long what a Cluster has left that went while it was paused stays; zero
// or less if its time is over.
func (t *tunnelRun) movedWait(record *corev1.Secret) time.Duration {
	moved, err := time.Parse(time.RFC3339, string(record.Data[recordMoved]))
	if err != nil || record.Data[recordEnding] != nil {
		return 0
	}
	return moved.Add(movedDelay).Sub(t.now())
}

// formerCluster is the Cluster that the record is of, and that is gone.
func (t *tunnelRun) formerCluster(key types.NamespacedName, record *corev1.Secret) *unstructured.Unstructured {
	return namedCluster(t.kind, key, types.UID(record.Data[recordUID]))
}

// endTunnel ends all agents of the Cluster u, deletes the Secrets that it owns, and then the
// record, so that a failure leads here again. The Secrets may be gone already, with the
// Cluster. Those that a restore has left are taken over first, but not for a Cluster that is
// gone: they may be restored before it. cached is what the cache has of the name: u, another
// Cluster, or none.
func (t *tunnelRun) endTunnel(ctx context.Context, u, cached *unstructured.Unstructured, record *corev1.Secret) error {
	key, cluster := nameOf(u), ownerOf(u)
	if record.Data[recordEnding] == nil {
		record = record.DeepCopy()
		record.Data = mergeInto(record.Data, map[string][]byte{recordEnding: []byte("true")})
		if err := t.writeRecord(ctx, cached, record); err != nil {
			return err
		}
	} else if live, err := getObject(ctx, t.live, nameOf(record), &corev1.Secret{}); err != nil || live == nil || live.ResourceVersion != record.ResourceVersion {
		return cmp.Or(err, errCacheLate)
	} else if err := checkScope(ctx, t.live, cached); err != nil {
		return err
	}
	if err := t.Server.EndCluster(ctx, key.String(), t.TicketLife); err != nil {
		return fmt.Errorf("revoke the agents of %s: %w", key, err)
	}
	if t.SetPayload != nil {
		if err := t.SetPayload(ctx, key.String(), tunnel.Payload{Name: keysPayload}); err != nil {
			return fmt.Errorf("SSH keys of %s: %w", key, err)
		}
	}
	for _, suffix := range []string{provider.SuffixTunnelAgent, provider.SuffixTunnelRoute} {
		// Not from the cache: a late one would have all of this done again.
		secret, err := getObject(ctx, t.live, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + suffix}, &corev1.Secret{})
		if err != nil {
			return err
		}
		if secret == nil || !isTunnelSecret(secret, cluster) {
			continue
		}
		if !owner.Owns(cluster, secret.OwnerReferences) {
			if u.GetResourceVersion() == "" {
				continue
			}
			secret.OwnerReferences = owner.With(cluster, secret.OwnerReferences)
			if err := t.writer.write(ctx, secret); err != nil {
				return err
			}
			t.tellAdopted(u, secret)
		}
		if err := t.writer.delete(ctx, secret); err != nil {
			return err
		}
	}
	if err := t.removeCondition(ctx, u); err != nil {
		return err
	}
	if err := t.writer.delete(ctx, record); err != nil {
		return err
	}
	log.FromContext(ctx).Info("revoked all agents") // once, also after failures
	t.states.forget(key)
	return nil
}

// recordName is the name of the record of a Cluster.
func (t *tunnelRun) recordName(key types.NamespacedName) types.NamespacedName {
	sum := sha256.Sum256([]byte(key.String()))
	return types.NamespacedName{Namespace: t.recordsAt.Namespace, Name: t.recordsAt.Name + "-record-" + hex.EncodeToString(sum[:16])}
}

// readRecord returns nil if the Cluster has none.
func (t *tunnelRun) readRecord(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	name := t.recordName(key)
	return getWritten(ctx, &t.writer.writes, t.live, t.records.of(name.Namespace), name, &corev1.Secret{})
}

// tooManyEnded reports whether so many Clusters of the namespace have come and gone that
// this one gets no tunnel yet: each leaves a revocation for a while, or its record if it was
// moved. One of the same name leaves no other.
func (t *tunnelRun) tooManyEnded(ctx context.Context, u *unstructured.Unstructured) (bool, error) {
	ended, err := t.Server.EndedClusters(ctx)
	if err != nil {
		return false, fmt.Errorf("tunnels that have ended: %w", err)
	}
	isOther := func(cluster string) bool { return secretName(cluster).Namespace != u.GetNamespace() }
	ended = slices.DeleteFunc(ended, isOther)
	records := &corev1.SecretList{}
	if err := t.records.of(t.recordsAt.Namespace).List(ctx, records, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("records of tunnels: %w", err)
	}
	for _, record := range records.Items {
		cluster := string(record.Data[recordCluster])
		if record.Data[recordMoved] != nil && !isOther(cluster) && !slices.Contains(ended, cluster) {
			ended = append(ended, cluster)
		}
	}
	if len(ended) < t.mostEnded || slices.Contains(ended, nameOf(u).String()) {
		return false, nil
	}
	problem := fmt.Sprintf("the namespace has had %d tunnels of Clusters that are gone: a record of each is kept for 8 days at least. Wait, or make the Cluster under a name that was used before", len(ended))
	t.setProblem(nameOf(u), problem)
	t.events.tell(u, corev1.EventTypeWarning, reasonInvitation, "no invitation could be made: "+problem, "")
	return true, nil
}

// createRecord is called before the first invitation.
func (t *tunnelRun) createRecord(ctx context.Context, u *unstructured.Unstructured) (*corev1.Secret, error) {
	name := t.recordName(nameOf(u))
	record := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{labelTunnelRecord: t.recordsAt.Name}},
		Data:       map[string][]byte{recordCluster: []byte(nameOf(u).String()), recordUID: []byte(u.GetUID())},
	}
	if err := t.writeRecord(ctx, u, record); err != nil {
		return nil, err
	}
	return record, t.takeRecord(ctx, u, record)
}

// writeRecord writes a record because of what the cache has of the Cluster. It first asks the
// API server, and the record must be as it was read: this leader may have been frozen, and
// another one may have made both since. Then nothing of these may end, and the error is
// errCacheLate.
func (t *tunnelRun) writeRecord(ctx context.Context, cached *unstructured.Unstructured, record *corev1.Secret) error {
	err := t.writeChecked(ctx, cached, record)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) && record.ResourceVersion != "" {
		return errCacheLate
	}
	return err
}

// writeChecked writes a Secret if the Cluster is as the cache had it.
func (t *tunnelRun) writeChecked(ctx context.Context, cached *unstructured.Unstructured, secret *corev1.Secret) error {
	if err := checkScope(ctx, t.live, cached); err != nil {
		return err
	}
	return t.writer.write(ctx, secret)
}

// takeRecord has the record be that of a Cluster which is there.
func (t *tunnelRun) takeRecord(ctx context.Context, u *unstructured.Unstructured, record *corev1.Secret) error {
	record.Data = mergeInto(record.Data, map[string][]byte{recordUID: []byte(u.GetUID()), recordVersion: []byte(u.GetResourceVersion()), recordSelf: []byte(record.UID)})
	delete(record.Data, recordMoved)
	return t.writeRecord(ctx, u, record)
}

// isRecordOf reports whether a record is as takeRecord leaves it.
func isRecordOf(u *unstructured.Unstructured, record *corev1.Secret) bool {
	return string(record.Data[recordUID]) == string(u.GetUID()) && string(record.Data[recordSelf]) == string(record.UID) &&
		record.Data[recordMoved] == nil
}

// endOfFormer reports whether the record is of a former Cluster whose tunnel has to end, and
// after what time. ended says that the watch has shown the end of one.
func (t *tunnelRun) endOfFormer(ctx context.Context, u *unstructured.Unstructured, record *corev1.Secret, ended bool) (ends bool, wait time.Duration, err error) {
	paused := clusterapi.IsPaused(u)
	switch {
	case record == nil || string(record.Data[recordUID]) == string(u.GetUID()):
		return false, 0, nil
	case ended:
		return true, 0, nil
	case record.Data[recordMoved] != nil:
		back, err := t.isBack(ctx, u, record)
		if err != nil || back {
			return false, 0, err
		}
		if paused { // for ever, perhaps; or its Secret is under way
			return true, t.movedWait(record), nil
		}
	case paused: // it may have been moved, or restored
		return false, 0, nil
	}
	// The record has been there since, and nobody has restored it: the Cluster was made again
	// while no server led, or while one had much to do.
	return string(record.Data[recordSelf]) == string(record.UID), 0, nil
}

// isBack reports whether the Cluster that went while it was paused is back: it owns a Secret with
// the invitation of before, as clusterctl move has it.
func (t *tunnelRun) isBack(ctx context.Context, u *unstructured.Unstructured, record *corev1.Secret) (bool, error) {
	key := nameOf(u)
	if record.Data[recordEnding] != nil {
		return false, nil
	}
	agent := &corev1.Secret{} // a cache may show the Cluster before it, and much depends on it
	err := t.live.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + provider.SuffixTunnelAgent}, agent)
	if err != nil || !owner.Owns(ownerOf(u), agent.OwnerReferences) {
		return false, client.IgnoreNotFound(err)
	}
	i, _ := tunnel.ParseInvitation(string(agent.Data[provider.KeyAgentInvitation]))
	return i.Cluster == key.String() && tokenHash(i.Token) == string(record.Data[recordToken]), nil
}

// readOwn returns a Secret that has the label of Cluster API; nil without one.
func (t *tunnelRun) readOwn(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	return getWritten(ctx, &t.writer.writes, t.live, wholeCache{t.mgr.GetCache(), t.live}, name, &corev1.Secret{})
}

// spreadOf returns a time up to d that is always the same for the Cluster, so that what
// many Clusters got in the same second is not renewed in one.
func spreadOf(key types.NamespacedName, d time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(key.String()))
	return time.Duration(float64(d) * float64(h.Sum32()) / (1 << 32))
}
