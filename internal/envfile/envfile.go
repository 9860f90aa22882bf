// Package envfile reads environment files, as systemd and shells do: one variable a line.
package envfile

import (
	"errors"
	"fmt"
	"strings"
)

// Read calls set with each variable of a text, in order, until there is an error. It allows blank
// lines, comments (#), "export", a byte order mark, and quotes around a value. The error names the
// line, and quotes no value.
func Read(text string, set func(name, value string) error) error {
	for number, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.Fields(line)[0] == "export" {
			line = strings.TrimPrefix(line, "export")
		}
		name, value, ok := strings.Cut(line, "=")
		err := errors.New("want NAME=value")
		if ok {
			err = set(strings.TrimSpace(name), unquote(value))
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number+1, err)
		}
	}
	return nil
}

// unquote takes off the quotes around a value.
func unquote(s string) string {
	if n := len(s); n >= 2 && s[0] == s[n-1] && (s[0] == '"' || s[0] == '\'') {
		return s[1 : n-1]
	}
	return s
}
