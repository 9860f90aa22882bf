package egress

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/causewayproject/causeway/internal/yamledit"
)

// Phase is how a kube-apiserver reaches the nodes, Services and Pods of its cluster. A
// cluster goes through the phases in their order, and back in the opposite order.
type Phase string

// The phases.
const (
	// PhaseOff: there is no Sidecar.
	PhaseOff Phase = "off"
	// PhaseBeside: the Sidecar runs, and kube-apiserver does not use it yet. Both ways can
	// be compared.
	PhaseBeside Phase = "beside"
	// PhaseOn: kube-apiserver uses the Sidecar.
	PhaseOn Phase = "on"
)

// Phases are all phases in their order.
func Phases() []Phase { return []Phase{PhaseOff, PhaseBeside, PhaseOn} }

// The names that [Sidecar.SetPhase] gives, and by which [PhaseOf] finds them again.
const (
	SidecarName       = "causeway-egress"
	socketVolume      = "causeway-egress-socket"
	credentialsVolume = "causeway-egress-credentials"

	apiServerName = "kube-apiserver"
	configFlag    = "--egress-selector-config-file"
)

// SocketName and ConfigName are the files that the program of the Sidecar makes in its
// SocketDir: the unix socket, and the EgressSelectorConfiguration that names it.
const (
	SocketName = "egress.sock"
	ConfigName = "egress.yaml"
)

// Sidecar is a container beside a kube-apiserver: a proxy on a unix socket that leads to a
// gateway ("causeway egress serve"). It runs as kube-apiserver's user, and only that user
// can open the socket.
//
// It is an init container with restartPolicy Always: it starts before kube-apiserver, and
// ends after it. This takes a kubelet of Kubernetes 1.29 or later.
type Sidecar struct {
	// Image has the program causeway. Required.
	Image string
	// Cluster is the cluster's name in the tunnel. Required.
	Cluster string
	// Gateway is the URL of the gateway, http or https, without user info. Required.
	Gateway string

	// CredentialsPath is a directory of the machine, for a static pod, which can't use
	// Secrets. The directory of the socket is on the machine then, too.
	CredentialsPath string
	// CredentialsSecret is a Secret in the namespace of the pod.
	CredentialsSecret string
	// TokenAudience asks the kubelet for a token of the pod's ServiceAccount.
	// Exactly one of these three fields is required.
	TokenAudience string

	// Dir is the directory in the containers, and on the machine for a static pod, for
	// what belongs to the Sidecar. If empty, /run/causeway-egress.
	Dir string
	// User is the user ID of the Sidecar. If zero, SetPhase takes kube-apiserver's from
	// the manifest; root if the manifest does not say it.
	User int64
}

// SocketDir is the directory of SocketName and ConfigName.
func (s *Sidecar) SocketDir() string { return path.Join(s.baseDir(), "socket") }

func (s *Sidecar) baseDir() string {
	return cmp.Or(s.Dir, "/run/causeway-egress")
}

// PhaseOf returns the phase of a manifest, which is a Pod or has a template of one. It
// looks at what the manifest runs; no annotation is needed.
func PhaseOf(manifest []byte) (Phase, error) {
	_, pod, err := parsePod(manifest)
	if err != nil {
		return "", err
	}
	return pod.phase(), nil
}

// SetPhase returns the manifest in another phase. The manifest, YAML or JSON, is a Pod, or a
// Deployment, StatefulSet or DaemonSet, with a container kube-apiserver. What belongs to the
// Sidecar is written anew; all else stays, comments included. The Sidecar's fields are not
// needed for [PhaseOff].
//
// The error names the field of the Sidecar, or what is wrong with the manifest: such as an
// --egress-selector-config-file of another proxy.
func (s *Sidecar) SetPhase(manifest []byte, to Phase) ([]byte, error) {
	if !slices.Contains(Phases(), to) {
		return nil, fmt.Errorf("egress: the phase %q is unknown: want off, beside or on", to)
	}
	document, pod, err := parsePod(manifest)
	if err != nil {
		return nil, err
	}
	pod.removeSidecar()
	if to != PhaseOff {
		if err := s.addTo(pod, to); err != nil {
			return nil, err
		}
	}
	text, err := yamledit.Encode(document)
	if err != nil {
		return nil, fmt.Errorf("egress: the manifest %w", err)
	}
	return text, nil
}

// addTo adds the Sidecar to a pod that has none.
func (s *Sidecar) addTo(pod *podNodes, to Phase) error {
	if err := s.validate(); err != nil {
		return err
	}
	if other := pod.configFlag(); other != "" {
		return fmt.Errorf("egress: kube-apiserver has %s already: take it out first, in its own restart", other)
	}
	if first := pod.wrapper(); first != "" {
		return fmt.Errorf("egress: kube-apiserver's command begins with %q: want kube-apiserver itself in the command, since a script may drop the flag that is added", first)
	}
	copied := *s
	if err := copied.takeUser(pod); err != nil {
		return err
	}
	parts := copied.parts()
	for _, list := range []struct {
		in    *yaml.Node
		field string
		items []any
	}{
		{pod.spec, "initContainers", parts.initContainers},
		{pod.container, "volumeMounts", parts.mounts},
		{pod.spec, "volumes", parts.volumes},
	} {
		if err := appendItems(list.in, list.field, list.items); err != nil {
			return err
		}
	}
	if to == PhaseOn {
		lists := pod.argumentLists()
		if len(lists) == 0 {
			return errors.New("egress: kube-apiserver has neither args nor a command in the manifest, to which the flag could be added")
		}
		flag := &yaml.Node{}
		flag.SetString(s.flag())
		lists[0].Content = append(lists[0].Content, flag)
	}
	return nil
}

func appendItems(mapping *yaml.Node, field string, items []any) error {
	list := yamledit.Child(mapping, field)
	if list == nil || list.Kind != yaml.SequenceNode {
		list = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		yamledit.SetChild(mapping, field, list)
	}
	list.Style &^= yaml.FlowStyle
	for _, item := range items {
		node := &yaml.Node{}
		if err := node.Encode(item); err != nil {
			return fmt.Errorf("egress: %w", err)
		}
		list.Content = append(list.Content, node)
	}
	return nil
}

// podNodes are the parts of a manifest that a phase changes.
type podNodes struct{ spec, container *yaml.Node }

func parsePod(manifest []byte) (document *yaml.Node, pod *podNodes, err error) {
	document, root, err := yamledit.Parse(manifest)
	if err != nil {
		return nil, nil, fmt.Errorf("egress: the manifest %w", err)
	}
	kind, spec := yamledit.Child(root, "kind"), yamledit.Child(root, "spec")
	switch {
	case kind == nil:
		return nil, nil, errors.New("egress: the manifest has no kind: want a Pod, or a Deployment, StatefulSet or DaemonSet")
	case slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, kind.Value):
		spec = yamledit.Child(yamledit.Child(spec, "template"), "spec")
	case kind.Value != "Pod":
		return nil, nil, fmt.Errorf("egress: the manifest is a %s: want a Pod, or a Deployment, StatefulSet or DaemonSet", kind.Value)
	}
	container, _ := yamledit.Named(yamledit.Child(spec, "containers"), apiServerName)
	if container == nil {
		return nil, nil, fmt.Errorf("egress: the manifest has no container %s", apiServerName)
	}
	return document, &podNodes{spec, container}, nil
}

func (p *podNodes) phase() Phase {
	switch sidecar, _ := yamledit.Named(yamledit.Child(p.spec, "initContainers"), SidecarName); {
	case sidecar == nil:
		return PhaseOff
	case slices.ContainsFunc(p.allFlags(), p.isOwnFlag):
		return PhaseOn
	}
	return PhaseBeside
}

// isOwnFlag reports whether an argument is the flag that SetPhase has added.
func (p *podNodes) isOwnFlag(n *yaml.Node) bool {
	mount, _ := yamledit.Named(yamledit.Child(p.container, "volumeMounts"), socketVolume)
	dir := yamledit.Child(mount, "mountPath")
	return dir != nil && n.Value == configFlag+"="+path.Join(dir.Value, ConfigName)
}

func (p *podNodes) removeSidecar() {
	for _, list := range p.argumentLists() {
		list.Content = slices.DeleteFunc(list.Content, p.isOwnFlag)
	}
	yamledit.DropNamed(p.spec, "initContainers", SidecarName)
	yamledit.DropNamed(p.container, "volumeMounts", socketVolume)
	yamledit.DropNamed(p.spec, "volumes", socketVolume)
	yamledit.DropNamed(p.spec, "volumes", credentialsVolume)
}

// argumentLists returns the lists that have kube-apiserver's arguments. The first one has
// its flags.
func (p *podNodes) argumentLists() (all []*yaml.Node) {
	for _, field := range []string{"args", "command"} {
		if list := yamledit.Child(p.container, field); list != nil && len(list.Content) > 0 {
			all = append(all, list)
		}
	}
	return all
}

// wrapper returns the first word of a command that does not name kube-apiserver; "" if it
// does, or if the image decides.
func (p *podNodes) wrapper() string {
	list := yamledit.Child(p.container, "command")
	if list == nil || len(list.Content) == 0 || slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return path.Base(n.Value) == apiServerName }) {
		return ""
	}
	return list.Content[0].Value
}

func (p *podNodes) allFlags() (all []*yaml.Node) {
	for _, list := range p.argumentLists() {
		all = append(all, list.Content...)
	}
	return all
}

// configFlag returns the --egress-selector-config-file that kube-apiserver has.
func (p *podNodes) configFlag() string {
	for _, n := range p.allFlags() {
		if name, _, _ := strings.Cut(n.Value, "="); name == configFlag {
			return n.Value
		}
	}
	return ""
}
