package egress

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/internal/yamledit"
)

// validate names the fields as Go does; programs replace the names by their flags'.
func (s *Sidecar) validate() error {
	var errs []error
	for _, required := range []struct{ field, value string }{{"Image", s.Image}, {"Cluster", s.Cluster}, {"Gateway", s.Gateway}} {
		if required.value == "" {
			errs = append(errs, fmt.Errorf("egress: Sidecar.%s is required", required.field))
		}
	}
	sources := 0
	for _, value := range []string{s.CredentialsPath, s.CredentialsSecret, s.TokenAudience} {
		if value != "" {
			sources++
		}
	}
	if sources != 1 {
		errs = append(errs, errors.New("egress: exactly one of Sidecar.CredentialsPath, Sidecar.CredentialsSecret and Sidecar.TokenAudience is required"))
	}
	if s.Gateway != "" {
		if err := CheckGateway(s.Gateway); err != nil {
			errs = append(errs, fmt.Errorf("egress: Sidecar.Gateway: %w", err))
		}
	}
	for _, part := range []struct{ field, value string }{{"Image", s.Image}, {"Cluster", s.Cluster}} {
		if err := quote.CheckWord(part.value); err != nil {
			errs = append(errs, fmt.Errorf("egress: Sidecar.%s %w", part.field, err))
		}
	}
	for _, part := range []struct{ field, value string }{{"CredentialsPath", s.CredentialsPath}, {"Dir", s.Dir}, {"TokenAudience", s.TokenAudience}} {
		if err := quote.Check(part.value); err != nil {
			errs = append(errs, fmt.Errorf("egress: Sidecar.%s %w", part.field, err))
		}
	}
	if s.User < 0 {
		errs = append(errs, errors.New("egress: Sidecar.User is less than zero"))
	}
	if n := len(path.Join(s.SocketDir(), SocketName)); n > maxSocketPath {
		errs = append(errs, fmt.Errorf("egress: Sidecar.Dir is too long: the path of the socket in it has %d bytes, and can have %d", n, maxSocketPath))
	}
	if path.Clean(s.baseDir()) == "/" {
		errs = append(errs, errors.New("egress: Sidecar.Dir is the root: want a directory of its own"))
	}
	if strings.Contains(s.Dir, "$(") || strings.Contains(s.Dir, "$$") {
		errs = append(errs, errors.New("egress: Sidecar.Dir has $( or $$, which the kubelet replaces in arguments"))
	}
	if !path.IsAbs(s.baseDir()) || s.CredentialsPath != "" && !path.IsAbs(s.CredentialsPath) {
		errs = append(errs, errors.New("egress: Sidecar.Dir and Sidecar.CredentialsPath are absolute paths"))
	}
	return errors.Join(errs...)
}

// maxSocketPath is that of Linux, less what the program of the Sidecar adds while it makes
// the socket.
const maxSocketPath = 107 - len(".new")

// CheckGateway returns why a text is not the URL of a gateway. It quotes nothing of the
// text, which may hold a password.
func CheckGateway(text string) error {
	if err := quote.Check(text); err != nil {
		return fmt.Errorf("it %w", err)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() != "" && !isPort(u.Port()):
		return errors.New("it is not http://host:port or https://host:port")
	case u.User != nil:
		return errors.New("it has user info, which everybody sees who can read the manifest: the credentials are in files")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("it has more than a host and a port")
	}
	return nil
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

// takeUser fills in the user that kube-apiserver runs as.
func (s *Sidecar) takeUser(pod *podNodes) error {
	if s.User != 0 {
		return nil
	}
	nonRoot := false
	for _, holder := range []*yaml.Node{pod.container, pod.spec} { // the container's counts more
		security := yamledit.Child(holder, "securityContext")
		if user := yamledit.Child(security, "runAsUser"); user != nil {
			id, err := strconv.ParseInt(user.Value, 10, 64)
			if err != nil {
				return errors.New("egress: kube-apiserver's securityContext.runAsUser is no number")
			}
			s.User = id
			return nil
		}
		if n := yamledit.Child(security, "runAsNonRoot"); n != nil && n.Value == "true" {
			nonRoot = true
		}
	}
	if nonRoot {
		return errors.New("egress: kube-apiserver has runAsNonRoot without runAsUser: set runAsUser in the manifest, or Sidecar.User, so that both can open the socket")
	}
	return nil
}

// sidecarParts are what a Sidecar adds to a pod.
type sidecarParts struct{ initContainers, mounts, volumes []any }

func (s *Sidecar) parts() sidecarParts {
	credentials := path.Join(s.baseDir(), "credentials")
	security := map[string]any{
		"allowPrivilegeEscalation": false,
		"capabilities":             map[string]any{"drop": []string{"ALL"}},
		"readOnlyRootFilesystem":   true,
		"runAsNonRoot":             s.User != 0,
		"runAsUser":                s.User,
	}
	socket := map[string]any{"name": socketVolume, "mountPath": s.SocketDir()}
	return sidecarParts{
		initContainers: []any{map[string]any{
			"name":  SidecarName,
			"image": s.Image,
			"args": []string{"egress", "serve", quote.Container(s.Cluster), quote.Container("--gateway=" + s.Gateway),
				"--credentials=" + credentials, "--dir=" + s.SocketDir()},
			"env":           []any{map[string]any{"name": "GOMEMLIMIT", "value": "200MiB"}},
			"restartPolicy": "Always",
			// kube-apiserver starts when the socket and the configuration are there.
			"startupProbe": map[string]any{
				"exec":             map[string]any{"command": []string{"/causeway", "egress", "probe", "--dir=" + s.SocketDir()}},
				"failureThreshold": 60,
				"periodSeconds":    1,
				"timeoutSeconds":   5,
			},
			"resources": map[string]any{
				"requests": map[string]any{"cpu": "10m", "memory": "48Mi"},
				"limits":   map[string]any{"memory": "256Mi"},
			},
			"securityContext": security,
			"volumeMounts": []any{socket,
				map[string]any{"name": credentialsVolume, "mountPath": credentials, "readOnly": true}},
		}},
		mounts: []any{socket},
		volumes: []any{s.socketSource(),
			s.credentialsSource()},
	}
}

func (s *Sidecar) socketSource() map[string]any {
	if s.CredentialsPath != "" {
		return map[string]any{"name": socketVolume, "hostPath": map[string]any{"path": s.SocketDir(), "type": "DirectoryOrCreate"}}
	}
	return map[string]any{"name": socketVolume, "emptyDir": map[string]any{}}
}

func (s *Sidecar) credentialsSource() map[string]any {
	volume := map[string]any{"name": credentialsVolume}
	switch {
	case s.CredentialsPath != "":
		volume["hostPath"] = map[string]any{"path": s.CredentialsPath, "type": "Directory"}
	case s.CredentialsSecret != "":
		volume["secret"] = map[string]any{"secretName": s.CredentialsSecret}
	default:
		volume["projected"] = map[string]any{"sources": []any{map[string]any{
			"serviceAccountToken": map[string]any{"audience": s.TokenAudience, "path": "token"}}}}
	}
	return volume
}

func (s *Sidecar) flag() string { return configFlag + "=" + path.Join(s.SocketDir(), ConfigName) }

// patches are what SetPhase does to a Pod, or to what has a template of one at prefix: a
// strategic merge patch with the Sidecar (nil for [PhaseOff]), and for [PhaseOn] a JSON patch
// (RFC 6902) that adds the flag to the command of the first container.
func (s *Sidecar) patches(to Phase, prefix string) (pod map[string]any, flag []any, err error) {
	if to == PhaseOff {
		return nil, nil, nil
	}
	if err := s.validate(); err != nil {
		return nil, nil, err
	}
	parts := s.parts()
	pod = map[string]any{"spec": map[string]any{
		"initContainers": parts.initContainers,
		"containers":     []any{map[string]any{"name": apiServerName, "volumeMounts": parts.mounts}},
		"volumes":        parts.volumes,
	}}
	if to == PhaseOn {
		flag = []any{map[string]any{"op": "add", "path": prefix + "/spec/containers/0/command/-", "value": s.flag()}}
	}
	return pod, flag, nil
}

// KubeadmConfig returns what SetPhase does to a static pod, as part of a KubeadmConfig's
// spec: patches, which kubeadm applies whenever it writes the manifest. The Sidecar runs as
// User. For [PhaseOff] there are none.
func (s *Sidecar) KubeadmConfig(to Phase) ([]byte, error) {
	pod, flag, err := s.patches(to, "")
	if err != nil {
		return nil, err
	}
	files := []any{}
	add := func(name string, patch any) {
		text, marshalErr := sigsyaml.Marshal(patch)
		err = errors.Join(err, marshalErr)
		files = append(files, map[string]any{"path": patchesDir + "/" + name, "owner": "root:root", "permissions": "0600", "content": string(text)})
	}
	config := map[string]any{}
	if pod != nil { // kubeadm refuses a directory that is not there
		add("kube-apiserver0+strategic.yaml", pod)
		patches := map[string]any{"patches": map[string]any{"directory": patchesDir}}
		config["initConfiguration"], config["joinConfiguration"] = patches, patches
	}
	if flag != nil {
		add("kube-apiserver1+json.yaml", flag)
	}
	config["files"] = files
	text, marshalErr := sigsyaml.Marshal(config)
	return text, errors.Join(err, marshalErr)
}

const patchesDir = "/etc/kubernetes/patches/causeway-egress"

// Component returns what SetPhase does to a Deployment, as a component of kustomize. The
// Sidecar runs as User.
func (s *Sidecar) Component(to Phase, namespace, name string) ([]byte, error) {
	pod, flag, err := s.patches(to, "/spec/template")
	if err != nil {
		return nil, err
	}
	patches := []any{}
	add := func(patch any, target map[string]any) {
		text, marshalErr := sigsyaml.Marshal(patch)
		err = errors.Join(err, marshalErr)
		patches = append(patches, map[string]any{"patch": string(text), "target": target})
	}
	if pod != nil {
		add(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": namespace, "name": name},
			"spec": map[string]any{"template": pod}}, nil)
	}
	if flag != nil {
		add(flag, map[string]any{"kind": "Deployment", "namespace": namespace, "name": name})
	}
	text, marshalErr := sigsyaml.Marshal(map[string]any{"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": patches})
	return text, errors.Join(err, marshalErr)
}
