package egress

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
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
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("egress: "+format, args...))
		}
	}
	check(s.Cluster == "", "Sidecar.Cluster is required")
	check(s.Gateway == "", "Sidecar.Gateway is required")
	sources := slices.DeleteFunc([]string{s.CredentialsPath, s.CredentialsSecret, s.TokenAudience}, func(value string) bool { return value == "" })
	check(len(sources) != 1, "exactly one of Sidecar.CredentialsPath, Sidecar.CredentialsSecret and Sidecar.TokenAudience is required")
	err := CheckGateway(s.Gateway)
	check(err != nil && s.Gateway != "", "Sidecar.Gateway: %w", err)
	err = quote.CheckImage(s.Image)
	check(err != nil, "Sidecar.Image %w", err)
	err = quote.CheckWord(s.Cluster)
	check(err != nil, "Sidecar.Cluster %w", err)
	for _, f := range [][2]string{{"CredentialsPath", s.CredentialsPath}, {"Dir", s.Dir}, {"TokenAudience", s.TokenAudience}} {
		err := quote.Check(f[1])
		check(err != nil, "Sidecar.%s %w", f[0], err)
	}
	check(s.User < 0, "Sidecar.User is less than zero")
	n := len(path.Join(s.SocketDir(), SocketName))
	check(n > maxSocketPath, "Sidecar.Dir is too long: the path of the socket in it has %d bytes, and can have %d", n, maxSocketPath)
	check(path.Clean(s.baseDir()) == "/", "Sidecar.Dir is the root: want a directory of its own")
	check(strings.Contains(s.Dir, "$(") || strings.Contains(s.Dir, "$$"), "Sidecar.Dir has $( or $$, which the kubelet replaces in arguments")
	check(!path.IsAbs(s.baseDir()) || s.CredentialsPath != "" && !path.IsAbs(s.CredentialsPath), "Sidecar.Dir and Sidecar.CredentialsPath are absolute paths")
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

type object = map[string]any

func (s *Sidecar) parts() sidecarParts {
	credentials := path.Join(s.baseDir(), "credentials")
	socket := object{"name": socketVolume, "mountPath": s.SocketDir()}
	return sidecarParts{
		initContainers: []any{object{
			"name":  SidecarName,
			"image": s.Image,
			"args": []string{"egress", "serve", quote.Container(s.Cluster), quote.Container("--gateway=" + s.Gateway),
				"--credentials=" + credentials, "--dir=" + s.SocketDir()},
			"env":           []any{object{"name": "GOMEMLIMIT", "value": "200MiB"}},
			"restartPolicy": "Always",
			// kube-apiserver starts when the socket and the configuration are there.
			"startupProbe": object{
				"exec":             object{"command": []string{"/causeway", "egress", "probe", "--dir=" + s.SocketDir()}},
				"failureThreshold": 60, "periodSeconds": 1, "timeoutSeconds": 5,
			},
			"resources": object{"requests": object{"cpu": "10m", "memory": "48Mi"}, "limits": object{"memory": "256Mi"}},
			"securityContext": object{
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": object{"drop": []string{"ALL"}},
				"runAsNonRoot": s.User != 0, "runAsUser": s.User,
			},
			"volumeMounts": []any{socket, object{"name": credentialsVolume, "mountPath": credentials, "readOnly": true}},
		}},
		mounts:  []any{socket},
		volumes: s.volumes(),
	}
}

// volumes are those of the socket and of the credentials.
func (s *Sidecar) volumes() []any {
	socket, credentials := object{"name": socketVolume, "emptyDir": object{}}, object{"name": credentialsVolume}
	switch {
	case s.CredentialsPath != "":
		socket = object{"name": socketVolume, "hostPath": object{"path": s.SocketDir(), "type": "DirectoryOrCreate"}}
		credentials["hostPath"] = object{"path": s.CredentialsPath, "type": "Directory"}
	case s.CredentialsSecret != "":
		credentials["secret"] = object{"secretName": s.CredentialsSecret}
	default:
		credentials["projected"] = object{"sources": []any{object{"serviceAccountToken": object{"audience": s.TokenAudience, "path": "token"}}}}
	}
	return []any{socket, credentials}
}

func (s *Sidecar) flag() string { return configFlag + "=" + path.Join(s.SocketDir(), ConfigName) }

const patchesDir = "/etc/kubernetes/patches/causeway-egress"

// KubeadmConfig returns what SetPhase does to a static pod, as part of a KubeadmConfig's
// spec: patches, which kubeadm applies whenever it writes the manifest. They are a strategic
// merge patch with the Sidecar, and for [PhaseOn] a JSON patch (RFC 6902) that adds the flag to
// the command of the first container. The Sidecar runs as User. [PhaseOff] has no patches.
func (s *Sidecar) KubeadmConfig(to Phase) ([]byte, error) {
	files := []any{}
	if to == PhaseOff { // kubeadm refuses a directory that is not there
		return sigsyaml.Marshal(object{"files": files})
	}
	err := s.validate()
	if err != nil {
		return nil, err
	}
	add := func(name string, patch any) {
		text, marshalErr := sigsyaml.Marshal(patch)
		err = errors.Join(err, marshalErr)
		files = append(files, object{"path": patchesDir + "/" + name, "owner": "root:root", "permissions": "0600", "content": string(text)})
	}
	parts := s.parts()
	add("kube-apiserver0+strategic.yaml", object{"spec": object{
		"initContainers": parts.initContainers,
		"containers":     []any{object{"name": apiServerName, "volumeMounts": parts.mounts}},
		"volumes":        parts.volumes,
	}})
	if to == PhaseOn {
		add("kube-apiserver1+json.yaml", []any{object{"op": "add", "path": "/spec/containers/0/command/-", "value": s.flag()}})
	}
	patches := object{"patches": object{"directory": patchesDir}}
	text, marshalErr := sigsyaml.Marshal(object{"initConfiguration": patches, "joinConfiguration": patches, "files": files})
	return text, errors.Join(err, marshalErr)
}

// Configuration returns the EgressSelectorConfiguration, for kube-apiserver's
// --egress-selector-config-file, that sends what goes to the cluster through the HTTP proxy
// on a unix socket. The path of the socket has to be absolute.
func Configuration(socket string) ([]byte, error) {
	if !filepath.IsAbs(socket) || strings.HasSuffix(socket, "/") || strings.ContainsRune(socket, 0) {
		return nil, errors.New("egress: it is not the absolute path of a socket")
	}
	return sigsyaml.Marshal(object{
		"apiVersion": "apiserver.k8s.io/v1beta1",
		"kind":       "EgressSelectorConfiguration",
		"egressSelections": []any{object{"name": "cluster", "connection": object{
			"proxyProtocol": "HTTPConnect", "transport": object{"uds": object{"udsName": socket}},
		}}},
	})
}
