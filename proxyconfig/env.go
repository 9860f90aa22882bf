package proxyconfig

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/internal/quote"
)

// Var is a variable of an environment. Its value may hold credentials.
type Var struct{ Name, Value string }

// The variables, in the order of every rendering. Some programs read one case
// only, and they differ in which one they read first.
const (
	httpProxy  = "HTTP_PROXY"
	httpsProxy = "HTTPS_PROXY"
	noProxy    = "NO_PROXY"
)

// fieldNames are the fields that the variables are of.
var fieldNames = map[string]string{httpProxy: "HTTPProxy", httpsProxy: "HTTPSProxy", noProxy: "NoProxy"}

// Env returns the variables that are set: HTTP_PROXY, http_proxy, HTTPS_PROXY,
// https_proxy, NO_PROXY, no_proxy, in this order, both cases with equal values.
// It leaves out a field that is "". c is not checked: see [Config.Validate].
func (c Config) Env() []Var {
	var vars []Var
	for _, v := range c.upperCaseVars() {
		vars = append(vars, v, Var{Name: lower[v.Name], Value: v.Value})
	}
	return vars
}

// upperCaseVars are the variables in upper case that are set.
func (c Config) upperCaseVars() []Var {
	all := []Var{{httpProxy, c.HTTPProxy}, {httpsProxy, c.HTTPSProxy}, {noProxy, c.NoProxy}}
	return slices.DeleteFunc(all, func(v Var) bool { return v.Value == "" })
}

var lower = map[string]string{httpProxy: "http_proxy", httpsProxy: "https_proxy", noProxy: "no_proxy"}

// ShellExports returns a script for a POSIX shell that exports the variables of
// [Config.Env], each in single quotes. An error is that of [Config.Validate].
func (c Config) ShellExports() (string, error) {
	return c.renderEnv("", func(v Var) (string, error) {
		word, err := quote.Shell(v.Value)
		return "export " + v.Name + "=" + word, err
	})
}

// EnvVars returns Env for a container, values included. Everybody with the right to
// read the pod can then read the credentials; [Config.EnvVarsFrom] keeps them out of it.
func (c Config) EnvVars() []corev1.EnvVar {
	var vars []corev1.EnvVar
	for _, v := range c.Env() {
		vars = append(vars, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	return vars
}

// EnvVarsFrom returns Env for a container whose values are in a Secret of the
// pod's namespace, which is what [Config.EnvSecretData] returns. A pod takes
// what the Secret holds when it starts. NO_PROXY is plain if plainList is set:
// it holds no credentials, and more than one Secret may go with one list.
func (c Config) EnvVarsFrom(secret string, plainList bool) []corev1.EnvVar {
	var vars []corev1.EnvVar
	for _, v := range c.upperCaseVars() {
		e := corev1.EnvVar{Name: v.Name, Value: v.Value}
		if v.Name != noProxy || !plainList {
			e = secretVar(v.Name, secret)
		}
		vars = append(vars, bothCases(e)...)
	}
	return vars
}

// secretVar returns a variable whose value is in a Secret, by its name.
func secretVar(name, secret string) corev1.EnvVar {
	key := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: name}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: key}}
}

// bothCases returns a variable in upper and in lower case.
func bothCases(v corev1.EnvVar) []corev1.EnvVar {
	l := *v.DeepCopy()
	l.Name = lower[v.Name]
	return []corev1.EnvVar{v, l}
}

// EnvSecretData returns the data of the Secret that [Config.EnvVarsFrom] refers
// to: the keys HTTP_PROXY, HTTPS_PROXY and NO_PROXY, as far as they are set.
func (c Config) EnvSecretData() map[string][]byte {
	data := map[string][]byte{}
	for _, v := range c.upperCaseVars() {
		data[v.Name] = []byte(v.Value)
	}
	return data
}

// SystemdDropIn returns a drop-in that sets the variables of [Config.Env] for a
// service: for containerd it is a file such as
// /etc/systemd/system/containerd.service.d/http-proxy.conf. See [Kubeadm].
// systemctl show prints the variables, credentials included, to everybody with the
// right to run it, whatever the mode of the file.
//
// A list is one line, as systemd has no way to break one within a word: that
// takes systemd 235 (2017) or newer where it is longer than 2048 bytes.
// An error is that of [Config.Validate].
func (c Config) SystemdDropIn() (string, error) {
	return c.renderEnv("[Service]\n", func(v Var) (string, error) {
		word, err := quote.SystemdAssignment(v.Name + "=" + v.Value)
		return "Environment=" + word, err
	})
}

// renderEnv is one of the renderings that are made of Env: a line for each variable.
func (c Config) renderEnv(head string, line func(Var) (string, error)) (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head)
	for _, v := range c.Env() {
		text, err := line(v)
		if err != nil {
			return "", fieldError(fieldNames[strings.ToUpper(v.Name)], err)
		}
		b.WriteString(text + "\n")
	}
	return b.String(), nil
}
