package proxyconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// DockerConfig returns a config.json of the docker client with proxies for the
// containers that it starts and for builds. It is a whole file: a user with one of
// their own puts proxies.default into it. The daemon takes a drop-in, see
// [Config.SystemdDropIn]. An error is that of [Config.Validate].
func (c Config) DockerConfig() (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	type proxies struct {
		HTTPProxy  string `json:"httpProxy,omitempty"`
		HTTPSProxy string `json:"httpsProxy,omitempty"`
		NoProxy    string `json:"noProxy,omitempty"`
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(map[string]map[string]proxies{"proxies": {"default": proxies(c)}})
	return b.String(), err
}

// DockerEnvFile returns the variables of [Config.Env] as a file for --env-file of
// docker run, podman run and kubectl create --from-env-file. These know no
// quotes: the rest of the line after the first = is the value. They read no line
// of 64 KiB or more: such a value is a [*FieldError], besides those of
// [Config.Validate]. Docker Compose and shells read such a file otherwise.
func (c Config) DockerEnvFile() (string, error) {
	return c.renderEnv("", func(v Var) (string, error) {
		line := v.Name + "=" + v.Value
		if n := len(line + "\n"); n > maxEnvFileLine {
			return "", fmt.Errorf("docker and kubectl read no line of %d bytes from a file of variables; want %d at most", n, maxEnvFileLine)
		}
		return line, nil
	})
}

// maxEnvFileLine is a line and its end (bufio.MaxScanTokenSize).
const maxEnvFileLine = 64 << 10
