package proxyconfig

import "strings"

// ShellExports returns a script for a POSIX shell that exports the variables of
// [Config.Env], each in single quotes. An error is that of [Config.Validate].
func (c Config) ShellExports() (string, error) {
	return c.renderEnv(func(b *strings.Builder, vars []Var) {
		for _, v := range vars {
			b.WriteString("export " + v.Name + "=" + shellQuote(v.Value) + "\n")
		}
	})
}

// shellQuote ends the quotes for a single quote, since nothing escapes it within.
func shellQuote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// DockerEnvFile returns the variables of [Config.Env] as a file for --env-file of
// docker run, podman run and kubectl create --from-env-file. These know no
// quotes: the rest of the line after the first = is the value.
// Docker Compose and shells read such a file otherwise: see
// [Config.ComposeEnvFile]. An error is that of [Config.Validate].
func (c Config) DockerEnvFile() (string, error) {
	return c.renderEnv(func(b *strings.Builder, vars []Var) {
		for _, v := range vars {
			b.WriteString(v.Name + "=" + v.Value + "\n")
		}
	})
}

// ComposeEnvFile returns the variables of [Config.Env] as a .env file for Docker
// Compose, which takes quotes off and expands $ without quotes. Values are
// in single quotes, and in double ones if they have a single one. An error is
// that of [Config.Validate].
func (c Config) ComposeEnvFile() (string, error) {
	return c.renderEnv(func(b *strings.Builder, vars []Var) {
		for _, v := range vars {
			b.WriteString(v.Name + "=" + composeQuote(v.Value) + "\n")
		}
	})
}

// composeQuote quotes a valid value, which has no " and no backslash. Compose's
// versions do not agree about \' within single quotes, but about \$ within double
// ones.
func composeQuote(value string) string {
	if !strings.Contains(value, "'") {
		return "'" + value + "'"
	}
	return `"` + strings.ReplaceAll(value, "$", `\$`) + `"`
}
