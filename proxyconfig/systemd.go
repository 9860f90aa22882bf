package proxyconfig

import "strings"

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
	return c.renderEnv(func(b *strings.Builder, vars []Var) {
		b.WriteString("[Service]\n")
		for _, v := range vars {
			b.WriteString("Environment=" + systemdQuote(v.Name+"="+v.Value) + "\n")
		}
	})
}

// renderEnv is one of the renderings that are made of Env.
func (c Config) renderEnv(write func(b *strings.Builder, vars []Var)) (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	var b strings.Builder
	write(&b, c.Env())
	return b.String(), nil
}

// systemdQuote quotes a word for Environment= (systemd.exec(5)): backslashes
// escape as in C within double quotes, then specifiers such as %n are expanded.
func systemdQuote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, "\n", `\n`).Replace(text) + `"`
}
