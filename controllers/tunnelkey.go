package controllers

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/causewayproject/causeway/internal/keypair"
	"github.com/causewayproject/causeway/internal/secretname"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
)

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
			t.events.tell(u, u.GetUID(), corev1.EventTypeWarning, reasonSSHKey, invalid.Error(), "")
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
		t.events.tell(u, u.GetUID(), corev1.EventTypeWarning, reasonPayload, "the SSH key can't be handed to the agents: "+err.Error(), "")
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
