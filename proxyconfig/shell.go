package proxyconfig

import (
	"fmt"
	"strings"

	"github.com/causewayproject/causeway/internal/quote"
)

// ShellExports returns a script for a POSIX shell that exports the variables of
// [Config.Env], each in single quotes. An error is that of [Config.Validate].
func (c Config) ShellExports() (string, error) {
	return c.renderEnv("", func(v Var) (string, error) {
		word, err := quote.Shell(v.Value)
		return "export " + v.Name + "=" + word, err
	})
}

// DockerEnvFile returns the variables of [Config.Env] as a file for --env-file of
// docker run, podman run and kubectl create --from-env-file. These know no
// quotes: the rest of the line after the first = is the value. They read no line
// of 64 KiB or more: such a value is a [*FieldError], besides those of
// [Config.Validate]. Docker Compose and shells read such a file otherwise: see
// [Config.ComposeEnvFile].
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

// ComposeEnvFile returns the variables of [Config.Env] as a .env file for Docker
// Compose, 1.29 and later, which takes quotes off and expands $ without quotes.
// Values are in single quotes. A single quote of a password is %27 there, which is
// the same password. An error is that of [Config.Validate].
func (c Config) ComposeEnvFile() (string, error) {
	return c.renderEnv("", func(v Var) (string, error) { return v.Name + "=" + composeQuote(v.Value), nil })
}

// composeQuote quotes a valid value: only the user info of a URL has a single
// quote. Compose's versions do not agree about \' within single quotes, nor about
// \$ within double ones.
func composeQuote(value string) string {
	return "'" + strings.ReplaceAll(value, "'", "%27") + "'"
}
