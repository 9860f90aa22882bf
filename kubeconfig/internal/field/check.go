// Package field checks what the fields of a kubeconfig, and of what one is made
// of, may hold.
package field

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/printable"
)

// CheckClusterName checks the name of a cluster.
func CheckClusterName(name string) error {
	if len(name) > validation.LabelValueMaxLength {
		return fmt.Errorf("has %d bytes; want at most %d, the length of a label value", len(name), validation.LabelValueMaxLength)
	}
	return CheckObjectName(name)
}

// CheckNamespace checks the name of a namespace.
func CheckNamespace(name string) error {
	return checkName(name, validation.IsDNS1123Label, "want a DNS label: at most 63 lowercase letters, digits and '-', a letter or digit at both ends")
}

// CheckObjectName checks the name of a Secret.
func CheckObjectName(name string) error {
	return checkName(name, validation.IsDNS1123Subdomain, "want a DNS name: lowercase letters, digits, '-' and '.', a letter or digit at both ends of each part")
}

func checkName(name string, findFaults func(string) []string, want string) error {
	switch {
	case name == "":
		return ErrRequired
	case len(findFaults(name)) > 0:
		return errors.New(want)
	}
	return nil
}

const wantHost = "want a DNS name or an IP address alone"

// CheckHost checks a host that is written into a URL or compared with a
// certificate. It says what people put there by mistake.
func CheckHost(host string) error {
	if host == "" {
		return fmt.Errorf("%w: %s", ErrRequired, wantHost)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return errors.New("holds an IPv6 zone, which has a meaning on one machine only")
		}
		return nil
	}
	switch {
	case strings.Contains(host, "://"):
		return errors.New("holds a scheme: " + wantHost)
	case strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return errors.New("holds a space or a control character: " + wantHost)
	case strings.ContainsAny(host, "/?#"):
		return errors.New("holds a path: " + wantHost)
	case strings.Contains(host, "@"):
		return errors.New("holds user info: " + wantHost)
	case strings.ContainsAny(host, "[]"):
		return errors.New("holds brackets: want an IPv6 address without them, and without a port")
	case strings.Count(host, ":") == 1:
		return errors.New("holds a port: " + wantHost)
	case strings.Contains(host, ":"):
		return errors.New("is not an IPv6 address: " + wantHost)
	}
	return CheckDNSName(host)
}

// CheckDNSName allows what resolvers do: upper case, underscores, a dot at
// the end.
func CheckDNSName(name string) error {
	name = strings.TrimSuffix(name, ".")
	if len(name) > 253 {
		return fmt.Errorf("has %d bytes, a DNS name has 253", len(name))
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		switch {
		case label == "" || len(label) > 63:
			return errors.New("is not a DNS name: the parts between the dots have 1 to 63 bytes")
		case label[0] == '-' || label[len(label)-1] == '-':
			return errors.New("is not a DNS name: no part begins or ends with '-'")
		}
		for _, r := range label {
			switch {
			case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
			case r > unicode.MaxASCII:
				return errors.New("is not a DNS name: write letters beyond ASCII as punycode (xn--)")
			default:
				return errors.New("is not a DNS name: want letters, digits, '-' and '.'")
			}
		}
	}
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return errors.New("is not an IP address, and a DNS name does not end in a number")
	}
	return nil
}

// Error is kubeconfig.FieldError.
type Error struct {
	// Field is the path of the field: "Endpoint.Host", "Route.ProxyURL".
	Field string
	// Err is what is wrong and what is expected.
	Err error
}

// Error is the field and what is wrong with it, at most 3 KiB of text that prints: names and
// errors of crypto/x509 repeat what somebody else wrote.
func (e *Error) Error() string {
	return "kubeconfig: " + printable.Text(e.Field, 2<<10) + ": " + printable.Text(fmt.Sprint(e.Err), 1<<10)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Wrap returns an *Error, nil if err is nil.
func Wrap(field string, err error) error {
	if err == nil {
		return nil
	}
	// The field says better than the dialer where this comes from.
	if de, ok := err.(*dialer.Error); ok {
		err = de.Err
	}
	return &Error{Field: field, Err: err}
}

// Errorf returns an *Error.
func Errorf(field, format string, args ...any) error {
	return &Error{Field: field, Err: fmt.Errorf(format, args...)}
}

// ErrRequired says that a field is not set.
var ErrRequired = errors.New("required")
