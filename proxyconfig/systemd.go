package proxyconfig

import (
	"strings"

	"github.com/causewayproject/causeway/internal/quote"
)

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
