package controllers

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/keypair"
	"github.com/causewayproject/causeway/internal/owner"
	"github.com/causewayproject/causeway/internal/secretname"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

const (
	// defaultTicketLife is longer than the programs run that keep a kubeconfig in memory.
	defaultTicketLife = 365 * 24 * time.Hour
	// annotationExpires is when the ticket of a route Secret ends.
	annotationExpires = provider.Prefix + "expires"
	// checkInterval is the time between two questions whether an invitation can still be used.
	// If agents came, went or were refused since, it is lookInterval: they may have used it up.
	checkInterval = 10 * time.Minute
	// clockSlack is how much longer than its life an invitation may seem to live.
	clockSlack = 5 * time.Minute
)

// reconcileAgent keeps the Secret with the machines' files up to date. It makes the Secret
// only once the endpoint is known: Cluster API would give the first machine files without it.
func (t *tunnelRun) reconcileAgent(ctx context.Context, u *unstructured.Unstructured, cluster provider.Cluster, record *corev1.Secret) error {
	key := nameOf(u)
	secret, err := t.readOwn(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + provider.SuffixTunnelAgent})
	if err != nil || cluster.Deleting || cluster.Endpoint.Host == "" || record == nil {
		return err
	}
	invitation, usable := t.readInvitation(secret, record, key)
	if usable {
		usable = t.checkInvitation(ctx, key, invitation)
	}
	if !usable {
		if invitation, err = t.invite(ctx, u, record); err != nil {
			t.setProblem(key, "no invitation could be made: "+err.Error())
			return err
		}
	}
	lines := invitation.Reveal()
	for _, line := range t.Environment {
		lines += line + "\n"
	}
	data, err := provider.AgentSecret{
		Invitation: lines, Image: t.Image, Endpoint: cluster.Endpoint,
		Port: apiServerPort(u), SSH: cluster.Annotations[provider.AnnotationTunnelSSH] != "",
	}.Data()
	if err != nil { // a person has to mend it
		t.setProblem(key, t.tellWriteFailed(u, provider.SuffixTunnelAgent, err.Error()))
		return nil
	}
	problem, err := t.keepSecret(ctx, u, secret, provider.SuffixTunnelAgent, nil, nil, data)
	t.setProblem(key, problem)
	return err
}

// dropFiles removes the files that name the Cluster's endpoint, once that can't be used: they
// may have been written before it was checked. Cluster API makes no machine without them.
func (t *tunnelRun) dropFiles(ctx context.Context, u *unstructured.Unstructured) error {
	key := nameOf(u)
	secret, err := t.readOwn(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + provider.SuffixTunnelAgent})
	if err != nil || secret == nil || secret.Labels[provider.LabelTunnel] == "" || secret.Data[provider.KeyAgentUnit] == nil && secret.Data[provider.KeyAgentPod] == nil {
		return err
	}
	secret = secret.DeepCopy()
	delete(secret.Data, provider.KeyAgentUnit)
	delete(secret.Data, provider.KeyAgentPod)
	return t.writeChecked(ctx, u, secret)
}

// setProblem is for the condition: "" if machines can get an agent.
func (t *tunnelRun) setProblem(key types.NamespacedName, problem string) {
	t.states.change(key, func(s *tunnelState) { s.problem = problem })
}

// readInvitation returns the one in the Secret, and whether it is as it was made, and new
// enough. If the Secret could not be written, it is the one that was made for that.
func (t *tunnelRun) readInvitation(secret, record *corev1.Secret, key types.NamespacedName) (tunnel.Invitation, bool) {
	var i tunnel.Invitation
	if secret != nil {
		i, _ = tunnel.ParseInvitation(string(secret.Data[provider.KeyAgentInvitation]))
	}
	made := string(record.Data[recordToken])
	if i.Cluster != key.String() || tokenHash(i.Token) != made {
		if i = t.states.get(key).invited; i.Token == "" || tokenHash(i.Token) != made {
			return i, false
		}
	}
	i.Servers = t.Servers
	left := i.Expires.Sub(t.now())
	return i, left <= invitationLife+clockSlack && left > invitationLife/2+spreadOf(key, invitationLife/8)
}

// checkInvitation reports whether the server still takes the invitation: its authority may
// be another one now, and as many agents as it is for may have used it. It asks seldom, and
// takes no answer for a yes.
func (t *tunnelRun) checkInvitation(ctx context.Context, key types.NamespacedName, i tunnel.Invitation) bool {
	now, state, wait := t.now(), t.states.get(key), checkInterval
	if state.agentsMoved {
		wait = lookInterval
	}
	if now.Sub(state.checkedAt) < wait {
		return true
	}
	t.states.change(key, func(s *tunnelState) { s.checkedAt, s.agentsMoved = now, false })
	list, err := t.Server.Invitations(ctx, key.String())
	return err != nil || slices.ContainsFunc(list, func(other tunnel.Invitation) bool {
		return other.Pin == i.Pin && other.Expires.Unix() == i.Expires.Unix()
	})
}

// invite makes an invitation, and notes its hash in the record before anybody can use it.
func (t *tunnelRun) invite(ctx context.Context, u *unstructured.Unstructured, record *corev1.Secret) (tunnel.Invitation, error) {
	t.states.change(nameOf(u), func(s *tunnelState) { s.checkedAt = t.now() })
	i, err := t.Server.InviteAgents(ctx, nameOf(u).String(), invitationAgents, invitationLife)
	if err != nil {
		t.events.tell(u, corev1.EventTypeWarning, reasonInvitation, "no invitation could be made: "+err.Error(), "")
		return i, fmt.Errorf("invite agents of %s: %w", nameOf(u), err)
	}
	i.Servers = t.Servers
	t.states.change(nameOf(u), func(s *tunnelState) { s.invited = i })
	changed := record.DeepCopy()
	changed.Data[recordToken] = []byte(tokenHash(i.Token))
	return i, t.writer.write(ctx, changed)
}

func tokenHash(token string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
}

// apiServerPort is where the API server of a control plane machine listens.
func apiServerPort(u *unstructured.Unstructured) int64 {
	if port, ok, _ := unstructured.NestedInt64(u.Object, "spec", "clusterNetwork", "apiServerPort"); ok && port > 0 {
		return port
	}
	return 6443
}

// reconcileRoute keeps the Secret with the ticket for the kubeconfig.
func (t *tunnelRun) reconcileRoute(ctx context.Context, u *unstructured.Unstructured, cluster provider.Cluster) error {
	key := nameOf(u)
	secret, err := t.readOwn(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + provider.SuffixTunnelRoute})
	if err != nil || secret == nil && cluster.Deleting {
		return err
	}
	data := map[string][]byte{}
	expires := ""
	if t.isTicketGood(ctx, secret, key) {
		data[provider.KeyUsername], data[provider.KeyPassword] = secret.Data[provider.KeyUsername], secret.Data[provider.KeyPassword]
		expires = secret.Annotations[annotationExpires]
	} else {
		user, password, err := t.Tickets.Issue(gateway.Identity{Name: key.String(), Cluster: key.String()}, t.TicketLife)
		if err != nil {
			return fmt.Errorf("ticket of %s: %w", key, err)
		}
		data[provider.KeyUsername], data[provider.KeyPassword] = []byte(user), []byte(password)
		expires = t.now().Add(t.TicketLife).UTC().Format(time.RFC3339)
	}
	if t.Gateway != "" {
		data[provider.KeyGateway] = []byte(t.Gateway)
	}
	_, err = t.keepSecret(ctx, u, secret, provider.SuffixTunnelRoute, map[string]string{provider.LabelRoute: ""},
		map[string]string{annotationExpires: expires}, data)
	return err
}

// isTicketGood reports whether the gateway takes the ticket, and it is new enough.
func (t *tunnelRun) isTicketGood(ctx context.Context, secret *corev1.Secret, key types.NamespacedName) bool {
	if secret == nil {
		return false
	}
	credentials := gateway.Credentials{User: string(secret.Data[provider.KeyUsername]), Password: string(secret.Data[provider.KeyPassword])}
	id, err := t.Tickets.Authenticate(ctx, credentials)
	expires, timeErr := time.Parse(time.RFC3339, secret.Annotations[annotationExpires])
	left := expires.Sub(t.now())
	return err == nil && timeErr == nil && id.Cluster == key.String() && id.Name == key.String() &&
		left > t.TicketLife/2+spreadOf(key, t.TicketLife/8) && left <= t.TicketLife+clockSlack
}

// keepSecret writes the Secret if it differs. It keeps what others have added. present is nil
// if the Secret is missing. problem says why it can't be written, and what to do; "" if it is
// written, or the next try may well do so.
func (t *tunnelRun) keepSecret(ctx context.Context, u *unstructured.Unstructured, present *corev1.Secret, suffix string, labels, annotations map[string]string, data map[string][]byte) (problem string, err error) {
	if n := len(u.GetName()); n > validation.LabelValueMaxLength {
		return t.tellWriteFailed(u, suffix, fmt.Sprintf("the Cluster's name has %d characters, and the label with it can have %d: make the Cluster under a shorter name", n, validation.LabelValueMaxLength)), nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName() + suffix}}
	cluster := ownerOf(u)
	if present != nil {
		if !isTunnelSecret(present, cluster) {
			return t.tellWriteFailed(u, suffix, foreignSecret), nil
		}
		secret = present.DeepCopy()
	}
	secret.Labels = mergeInto(secret.Labels, labels, map[string]string{kubeconfig.ClusterNameLabel: u.GetName(), provider.LabelTunnel: "true"})
	secret.Annotations = mergeInto(secret.Annotations, annotations)
	secret.Data = mergeInto(secret.Data, data)
	if _, wanted := data[provider.KeyAgentPod]; !wanted {
		delete(secret.Data, provider.KeyAgentPod)
	}
	secret.OwnerReferences = owner.With(cluster, secret.OwnerReferences)
	if present != nil && maps.Equal(present.Labels, secret.Labels) && maps.Equal(present.Annotations, secret.Annotations) &&
		maps.EqualFunc(present.Data, secret.Data, bytes.Equal) && owner.Owns(cluster, present.OwnerReferences) {
		return "", nil
	}
	err = t.writeChecked(ctx, u, secret)
	switch {
	case err == nil && present != nil && !owner.Owns(cluster, present.OwnerReferences):
		t.tellAdopted(u, secret)
		return "", nil
	case err == nil, errors.Is(err, errCacheLate), apierrors.IsConflict(err), ctx.Err() != nil:
		return "", err
	case apierrors.IsAlreadyExists(err):
		return t.tellWriteFailed(u, suffix, foreignSecret), err
	}
	return t.tellWriteFailed(u, suffix, err.Error()), err
}

// tellAdopted tells of a Secret that was taken over after a restore.
func (t *tunnelRun) tellAdopted(u *unstructured.Unstructured, secret *corev1.Secret) {
	t.events.tell(u, corev1.EventTypeNormal, reasonAdopted,
		"the Secret "+secret.Name+" is taken over: it has the name and the labels of ours, and no owner that is there", "")
}

// ownerOf is the owner reference to a Cluster.
func ownerOf(u *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: u.GetAPIVersion(), Kind: clusterapi.Kind, Name: u.GetName(), UID: u.GetUID()}
}

// isTunnelSecret reports whether a Secret beside a Cluster is the server's: the Cluster owns
// it, or a restore has left it. The label is no proof, but without it a person has taken the
// Secret for something else.
func isTunnelSecret(s *corev1.Secret, cluster metav1.OwnerReference) bool {
	return s.Labels[provider.LabelTunnel] != "" && (s.Type == "" || s.Type == corev1.SecretTypeOpaque) &&
		owner.MayAdopt(cluster, s.OwnerReferences)
}

const foreignSecret = "a Secret of this name is there, and not the server's: delete it"

// tellWriteFailed returns what the Event says.
func (t *tunnelRun) tellWriteFailed(u *unstructured.Unstructured, suffix, problem string) string {
	text := "the Secret " + u.GetName() + suffix + " can't be written: " + problem
	t.events.tell(u, corev1.EventTypeWarning, reasonWriteFailed, text, "")
	return text
}

// mergeInto returns a map with all of them; a later one counts more. It writes to none.
func mergeInto[V any](all ...map[string]V) map[string]V {
	merged := map[string]V{}
	for _, m := range all {
		maps.Copy(merged, m)
	}
	return merged
}

// keysPayload is the name of the payload that causeway-agent takes.
const keysPayload = "authorized_keys"

// reconcileKey hands the Cluster's agents the public key of the Secret that the annotation
// names, and makes the Secret if it is missing. Without the annotation, the agents lose
// the key that they had.
func (t *tunnelRun) reconcileKey(ctx context.Context, u *unstructured.Unstructured, cluster provider.Cluster) error {
	if t.SetPayload == nil {
		return nil
	}
	name := strings.TrimSpace(cluster.Annotations[provider.AnnotationTunnelSSH])
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: name}
	if name == "" {
		key = types.NamespacedName{}
	}
	t.states.change(nameOf(u), func(s *tunnelState) { s.key = key })
	keys := ""
	if name != "" {
		public, err := t.publicKey(ctx, u, key, cluster.Deleting)
		if invalid, ok := errors.AsType[*keyError](err); ok { // a person has to mend it; the agents keep what they have
			t.events.tell(u, corev1.EventTypeWarning, reasonSSHKey, invalid.Error(), "")
			return nil
		}
		if err != nil || public == "" {
			return err
		}
		keys = public
	}
	if state := t.states.get(nameOf(u)); state.payload == "set:"+keys {
		return nil
	}
	if err := checkScope(ctx, t.live, u); err != nil {
		return err
	}
	if err := t.SetPayload(ctx, nameOf(u).String(), tunnel.Payload{Name: keysPayload, Data: []byte(keys)}); err != nil {
		t.events.tell(u, corev1.EventTypeWarning, reasonPayload, "the SSH key can't be handed to the agents: "+err.Error(), "")
		return fmt.Errorf("SSH key of %s: %w", nameOf(u), err)
	}
	t.states.change(nameOf(u), func(s *tunnelState) { s.payload = "set:" + keys })
	return nil
}

// keyError says what is wrong with a Secret with an SSH key. It quotes none.
type keyError struct{ text string }

// Error names the Secret, or the annotation.
func (e *keyError) Error() string { return e.text }

// publicKey returns a line of authorized_keys, "" if there is no key and none is to be made.
func (t *tunnelRun) publicKey(ctx context.Context, u *unstructured.Unstructured, name types.NamespacedName, deleting bool) (string, error) {
	if len(validation.IsDNS1123Subdomain(name.Name)) > 0 {
		return "", &keyError{"the annotation " + provider.AnnotationTunnelSSH + " is no name of a Secret"}
	}
	secret, err := getWritten(ctx, &t.writer.writes, t.live, t.keys.of(name.Namespace), name, &corev1.Secret{})
	if err != nil || secret == nil && deleting {
		return "", err
	}
	if secret == nil {
		return t.createKey(ctx, u, name)
	}
	text := secret.Data[corev1.SSHAuthPrivateKey]
	if err := keypair.Check(text); err != nil {
		return "", &keyError{fmt.Sprintf("the Secret %s: %s: %s", name.Name, corev1.SSHAuthPrivateKey, err)}
	}
	private, err := ssh.ParsePrivateKey(text)
	if err != nil { // the error may be of one with a passphrase
		return "", &keyError{fmt.Sprintf("the Secret %s has no key %s that can be read: want a private key without a passphrase", name.Name, corev1.SSHAuthPrivateKey)}
	}
	return string(ssh.MarshalAuthorizedKey(private.PublicKey())), nil
}

// createKey makes a key pair. It stays when the Cluster is gone, unless that owns it.
func (t *tunnelRun) createKey(ctx context.Context, u *unstructured.Unstructured, name types.NamespacedName) (string, error) {
	if taken := secretname.Taken(name.Name); taken != "" {
		return "", &keyError{fmt.Sprintf("the annotation %s: the Secret %s is not made, as Kubernetes, Cluster API or another of our programs takes one with %s for its own: name another one",
			provider.AnnotationTunnelSSH, name.Name, taken)}
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(private, nameOf(u).String())
	if err != nil {
		return "", err
	}
	line, err := ssh.NewPublicKey(public)
	if err != nil {
		return "", err
	}
	authorized := ssh.MarshalAuthorizedKey(line)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{kubeconfig.ClusterNameLabel: u.GetName()},
			OwnerReferences: []metav1.OwnerReference{ownerOf(u)}},
		Type: corev1.SecretTypeSSHAuth,
		Data: map[string][]byte{corev1.SSHAuthPrivateKey: pem.EncodeToMemory(block), provider.KeySSHPublic: authorized},
	}
	err = t.writeChecked(ctx, u, secret)
	if apierrors.IsAlreadyExists(err) {
		var other corev1.Secret
		if t.live.Get(ctx, name, &other) == nil && other.Type == corev1.SecretTypeSSHAuth {
			return "", errCacheLate
		}
		return "", &keyError{fmt.Sprintf("the Secret %s is there, and not of the type %s", name.Name, corev1.SecretTypeSSHAuth)}
	}
	return string(authorized), err
}
