package proxyconfig

import (
	"fmt"
	"strings"
)

// File is an entry of files: in Cluster API's KubeadmConfig (bootstrap v1beta1
// and v1beta2), and marshals to it in JSON and YAML. Its content stays in the
// Secret: Cluster API waits until that exists, and writes what it holds when a
// machine is made. An existing machine keeps what it got.
type File struct {
	Path        string     `json:"path"`        // absolute, on the machine
	Permissions string     `json:"permissions"` // octal
	ContentFrom FileSource `json:"contentFrom"`
}

// FileSource is where the content of a [File] is.
type FileSource struct {
	Secret SecretKey `json:"secret"`
}

// SecretKey is a key of a Secret in the namespace of the object that refers to it.
type SecretKey struct {
	Name string `json:"name"` // the Secret's
	Key  string `json:"key"`  // in its data
}

// KubeadmFiles returns the entries that write what a Secret holds, a drop-in, for
// each of the units: "containerd" and "kubelet", or any "name.service". If none
// are given, it is containerd's, as Giant Swarm's RFC has it. The files are
// only root's, mode 0600.
//
// from is mostly [ClusterValues.SystemdSecret]. An error is a [*FieldError].
func KubeadmFiles(from SecretKey, units ...string) ([]File, error) {
	if from.Name == "" || from.Key == "" {
		return nil, fieldErrorf("SecretKey", "name and key are required")
	}
	if len(units) == 0 {
		units = []string{"containerd"}
	}
	var files []File
	for i, unit := range units {
		unit = strings.TrimSuffix(unit, ".service")
		if unit == "" || strings.ContainsFunc(unit, notInUnit) {
			return nil, fieldErrorf(fmt.Sprintf("units[%d]", i), "not the name of a service")
		}
		files = append(files, File{
			Path:        "/etc/systemd/system/" + unit + ".service.d/http-proxy.conf",
			Permissions: "0600",
			ContentFrom: FileSource{Secret: from},
		})
	}
	return files, nil
}

// notInUnit is systemd's set (systemd.unit(5)), without the backslash: the names
// go into a path on a machine.
func notInUnit(r rune) bool { return notInName(r) && r != ':' && r != '@' }
