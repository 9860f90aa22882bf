// Package mask takes our own credentials out of what a peer has sent: a proxy or
// a gateway may repeat what it was sent in its answer, and answers are quoted in
// errors, logs and Events.
package mask

import (
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/causewayproject/causeway/internal/printable"
)

// Mark takes the place of a secret.
const Mark = "***"

const (
	// minHeaderValue is the length from which on the value of any header counts as a
	// secret. Shorter ones are in too many texts by chance.
	minHeaderValue = 8
	// minAnywhere is the length from which on a secret is masked within a word, too. The
	// letter of a shorter one is in most words.
	minAnywhere = 4
	// minCut is how much of a secret is masked at the end of a text that was cut.
	minCut = 3
)

// Text returns text with each secret in it replaced by [Mark]. A secret is found
// as it is, and if any of its bytes are percent-encoded, or escaped as in HTML or
// JSON. cut says that text may end within a secret: its beginning at the end of
// text is masked too. A secret of one to three bytes is masked as a word of its own only.
// Secrets that are empty or a space are ignored.
func Text(text string, cut bool, secrets []string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		n := 0
		for _, secret := range secrets {
			if m := match(text[i:], secret, cut); len(secret) >= minAnywhere || isWord(text, i, i+m) {
				n = max(n, m)
			}
		}
		if n == 0 {
			b.WriteByte(text[i])
			i++
			continue
		}
		b.WriteString(Mark)
		i += n
	}
	return b.String()
}

// isWord reports whether text[from:to] begins and ends where words do.
func isWord(text string, from, to int) bool {
	within := func(i int) bool { return i > 0 && i < len(text) && isLetter(text[i-1]) && isLetter(text[i]) }
	return !within(from) && !within(to)
}

// isLetter counts digits as letters, and all bytes beyond ASCII.
func isLetter(b byte) bool {
	return b >= 0x80 || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z'
}

// Error returns err, or an error with the text of it masked, which wraps nothing,
// if that holds a secret.
func Error(err error, secrets []string) error {
	if text := Text(err.Error(), false, secrets); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// match returns how much of the beginning of text is secret, or zero.
func match(text, secret string, cut bool) int {
	if secret == "" || secret == " " {
		return 0
	}
	ends := []int{0} // several: a % may stand for itself
	for i := range len(secret) {
		var next []int
		for _, end := range ends {
			rest := text[end:]
			if cut && end >= minCut && (rest == "" || len(rest) < 8 && strings.ContainsRune(`%&\`, rune(rest[0])) && !strings.Contains(rest, ";")) {
				return len(text)
			}
			for _, n := range byteForms(rest, secret[i]) {
				next = append(next, end+n)
			}
		}
		if len(next) == 0 {
			return 0
		}
		slices.Sort(next)
		ends = slices.Compact(next)
	}
	return ends[len(ends)-1]
}

// byteForms returns the lengths of the beginnings of text that may stand for b.
func byteForms(text string, b byte) []int {
	var forms []int
	if text == "" {
		return nil
	}
	if text[0] == b || text[0] == '+' && b == ' ' {
		forms = append(forms, 1)
	}
	hasForm := func(form string) {
		if len(text) >= len(form) && strings.EqualFold(text[:len(form)], form) {
			forms = append(forms, len(form))
		}
	}
	switch text[0] {
	case '%':
		hasForm(fmt.Sprintf("%%%02x", b))
	case '\\':
		hasForm(fmt.Sprintf(`\u%04x`, b))
		if len(text) > 1 && text[1] == b {
			forms = append(forms, 2)
		}
	case '&':
		if end := strings.IndexByte(text[:min(len(text), 10)], ';'); end > 0 && html.UnescapeString(text[:end+1]) == string(rune(b)) {
			forms = append(forms, end+1)
		}
	}
	return forms
}

// Header returns the secrets in a header that is sent: the credentials of
// Authorization and Proxy-Authorization, and other values unless they are short.
func Header(header http.Header) []string {
	var secrets []string
	for name, values := range header {
		for _, value := range values {
			switch http.CanonicalHeaderKey(name) {
			case "Authorization", "Proxy-Authorization":
				secrets = append(secrets, Authorization(value)...)
			default:
				if len(value) >= minHeaderValue {
					secrets = append(secrets, value)
				}
			}
		}
	}
	return secrets
}

// Authorization returns the secrets in the value of an Authorization or
// Proxy-Authorization header. Of the Basic scheme that is the password as well.
func Authorization(value string) []string {
	scheme, sent, ok := strings.Cut(value, " ")
	if !ok {
		sent = value
	}
	secrets := []string{sent}
	if pair, err := base64.StdEncoding.DecodeString(sent); err == nil && strings.EqualFold(scheme, "Basic") {
		user, password, _ := strings.Cut(string(pair), ":")
		secrets = append(secrets, Login(user, password)...)
	}
	return secrets
}

// Login returns the secrets of a user name and password: the password, and both
// as they are sent, without the padding.
func Login(user, password string) []string {
	if password == "" {
		return nil
	}
	secrets := []string{password}
	for _, text := range []string{user + ":" + password, password} {
		secrets = append(secrets, base64.RawStdEncoding.EncodeToString([]byte(text)), base64.RawURLEncoding.EncodeToString([]byte(text)))
	}
	return secrets
}

// Address returns an address that somebody has written, such as host:port or a URL, for
// people to read: without a password. The query of a URL may hold a secret too, and a URL
// may lack its scheme.
func Address(address string) string {
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		if err != nil {
			return "(not a URL)"
		}
		if u.RawQuery != "" {
			u.RawQuery = "xxxxx"
		}
		address = u.Redacted()
	} else if i := strings.LastIndexByte(address, '@'); i >= 0 {
		address = "xxxxx" + address[i:]
	}
	return printable.Text(address, printable.Most)
}
