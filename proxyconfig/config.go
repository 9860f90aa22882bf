package proxyconfig

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/causewayproject/causeway/noproxy"
)

// Config is a program's proxy configuration. The zero Config means no proxy. It is
// a value: no method changes it, so goroutines may share it.
type Config struct {
	// HTTPProxy and HTTPSProxy are the URLs of the proxies for http and for
	// https targets: scheme://[user[:password]@]host[:port], the scheme http,
	// https, socks5 or socks5h. If "", such targets are reached directly.
	HTTPProxy, HTTPSProxy string

	// NoProxy is the list of what is reached directly, as package noproxy reads
	// it. If "", the list is empty.
	NoProxy string
}

// maxValue is what Linux takes of a variable, its name and a NUL included
// (MAX_ARG_STRLEN): execve fails with a longer one, and no program starts.
const maxValue = 128<<10 - len("HTTPS_PROXY=") - 1

// Validate returns an error that wraps a [*FieldError] for each field that
// can't be used, without its value. The reader of a rendering gets valid values
// unchanged. A rendering whose reader can't have one returns a [*FieldError] of
// its own.
//
// The user name and the password of a URL have to be percent-encoded. A valid
// URL may hold $, but not $$ and $(, which Kubernetes expands in a pod's
// environment. Programs read a valid list in different ways, see [Config.Lint].
func (c Config) Validate() error {
	return errors.Join(
		fieldError("HTTPProxy", checkURL(c.HTTPProxy)),
		fieldError("HTTPSProxy", checkURL(c.HTTPSProxy)),
		fieldError("NoProxy", checkList(c.NoProxy)),
	)
}

func fieldError(field string, err error) error {
	if err == nil {
		return nil
	}
	return &FieldError{Field: field, Err: err}
}

// checkList refuses what no list can mean and what not every rendering could
// carry. An item that merely makes no sense is a finding of Lint.
func checkList(list string) error {
	if len(list) > maxValue {
		return fmt.Errorf("%d bytes, more than the %d that fit into a variable", len(list), maxValue)
	}
	if strings.Contains(list, "@") || strings.Contains(list, "://") {
		return errors.New("a URL or credentials; write hosts alone")
	}
	for _, mark := range []string{"{{", "{%", "{#"} { // Jinja: cloud-init reads Cluster API's user data as a template
		if strings.Contains(list, mark) {
			return fmt.Errorf("the characters %s, which cloud-init takes for a template and no host has", mark)
		}
	}
	for i := range len(list) {
		switch b := list[i]; {
		case b < ' ' || b == 0x7f:
			return fmt.Errorf("a control character (0x%02x); want items with commas between them, in one line", b)
		case b > 0x7f:
			return errors.New("a character that is not ASCII; write international names in their ASCII form (xn--)")
		case strings.IndexByte("\"'\\$`", b) >= 0:
			return fmt.Errorf("the character %c, which no host has", b)
		}
	}
	return nil
}

// Lint returns what the consumers, or all of them if none are given, read
// differently from Go in NoProxy: see [noproxy.Lint]. A finding is no error, and
// holds no credentials.
func (c Config) Lint(consumers ...noproxy.Consumer) []noproxy.Finding {
	return noproxy.Lint(c.NoProxy, consumers...)
}

// IsZero reports whether nothing is set.
func (c Config) IsZero() bool { return c == Config{} }

// Redacted returns c without the user info of its URLs, for people and logs. What
// can't be parsed is left out altogether. It is not meant to be used as a
// configuration; [Config.WithoutCredentials] is.
func (c Config) Redacted() Config {
	return Config{HTTPProxy: redactURL(c.HTTPProxy), HTTPSProxy: redactURL(c.HTTPSProxy), NoProxy: redactList(c.NoProxy)}
}

// WithoutCredentials returns c without the user info of its URLs. It is valid if
// c is.
func (c Config) WithoutCredentials() Config {
	c.HTTPProxy, c.HTTPSProxy = withoutUser(c.HTTPProxy), withoutUser(c.HTTPSProxy)
	return c
}

// String returns c without its secrets.
func (c Config) String() string {
	r := c.Redacted()
	return fmt.Sprintf("proxyconfig.Config{HTTPProxy: %q, HTTPSProxy: %q, NoProxy: %q}", r.HTTPProxy, r.HTTPSProxy, r.NoProxy)
}

// Format writes String, whatever the verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func redactList(list string) string {
	if list != "" && checkList(list) != nil {
		return "(invalid list)"
	}
	return list
}

// FieldError says which field can't be used and what is expected of it. It
// holds no secret: neither its text nor Err repeats what a field held.
//
// [Config.Validate] reports all fields at once: its error wraps one FieldError
// each (errors.Join), of which errors.As finds the first.
type FieldError struct {
	// Field is the path of the field: "HTTPProxy", "User.NoProxy".
	Field string
	// Err is what is wrong and what is expected.
	Err error
}

// Error is the field and what is wrong with it.
func (e *FieldError) Error() string { return "proxyconfig: " + e.Field + ": " + fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}
