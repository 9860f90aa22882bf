// Package quote writes a value into a syntax so that its reader gets that value, and
// nothing else. What a syntax can't carry is an error. Errors complete a sentence about the
// value, and do not repeat it: it may be secret.
//
// YAML is in package yamledit.
package quote

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Check returns an error for what no syntax carries safely: a control character of any
// kind, a separator of lines, a mark that changes the direction in which people see text,
// and bytes that are not UTF-8.
func Check(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("has bytes that are not UTF-8")
	}
	for _, r := range text {
		switch {
		case unicode.IsControl(r):
			return fmt.Errorf("has a control character (%U)", r)
		case unicode.In(r, unicode.Zl, unicode.Zp):
			return fmt.Errorf("has a separator of lines (%U)", r)
		case unicode.In(r, unicode.Bidi_Control):
			return fmt.Errorf("has a character that changes the direction of text (%U)", r)
		}
	}
	return nil
}

// CheckWord is Check for a name, which has no spaces.
func CheckWord(text string) error {
	err := Check(text)
	if err == nil && strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		err = errors.New("has a space, or a character that does not print")
	}
	return err
}

// imageReference is what the kubelet takes; a part in front of the first / may be a host.
var imageReference = regexp.MustCompile(`^(([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]*)?(@[a-z0-9+._-]+:[0-9a-fA-F]+)?$`)

// CheckImage is CheckWord for the image of a container.
func CheckImage(text string) error {
	err := CheckWord(text)
	if err == nil && !imageReference.MatchString(text) {
		err = errors.New("is no image: want REGISTRY/NAME:TAG, without https://, and with a NAME in lower case")
	}
	return err
}

// SystemdArgument returns an argument for ExecStart= and its like (systemd.service(5),
// "Command lines"). It is not for the program itself, whose prefixes such as @ and + stay.
func SystemdArgument(text string) (string, error) {
	if text != "" && strings.Trim(text, plainArgument) == "" {
		return text, nil
	}
	word, err := SystemdAssignment(text)
	return strings.ReplaceAll(word, "$", "$$"), err
}

// plainArgument is what means itself in any place of an argument.
const plainArgument = alphanumeric + "-_./:=,@+*[]"

// SystemdAssignment returns a word NAME=value for Environment= (systemd.exec(5)).
func SystemdAssignment(text string) (string, error) {
	if err := Check(text); err != nil {
		return "", err
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(text) + `"`, nil
}

// Shell returns a word for a POSIX shell.
func Shell(text string) (string, error) {
	if err := Check(text); err != nil {
		return "", err
	}
	// Nothing escapes a single quote within single quotes.
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'", nil
}

// EnvLine returns NAME=value without quotes. A shell that assigns it, systemd's
// EnvironmentFile=, docker, kubectl, and YAML that has the line in a block read the same.
func EnvLine(name, value string) (string, error) {
	for _, r := range value {
		if r > unicode.MaxASCII && !unicode.In(r, unicode.L, unicode.M, unicode.N) || r <= unicode.MaxASCII && !strings.ContainsRune(plainEnv, r) {
			return "", fmt.Errorf("has the character %q, which not all programs read as itself", r)
		}
	}
	return name + "=" + value, Check(value)
}

const (
	alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	plainEnv     = alphanumeric + "-_./:@+[]%,*="
)

// Container returns text for args and env of a container, where the kubelet replaces
// $(NAME).
func Container(text string) string { return strings.ReplaceAll(text, "$", "$$") }
