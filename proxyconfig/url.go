package proxyconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	urlForm = "want scheme://[user:password@]host[:port]"
	advice  = "percent-encode what is not a letter, a digit or one of -._~ in the user name and the password, such as @ as %40 and % as %25"
)

// Go's net/http, and so containerd and the kubelet, takes proxies with these schemes
// from the environment.
var schemes = []string{"http", "https", "socks5", "socks5h"}

// checkURL says what is wrong with a proxy's URL, without a part of it: where
// the password of a malformed one is, is anyone's guess.
func checkURL(text string) error {
	if text == "" {
		return nil
	}
	if len(text) > maxValue {
		return fmt.Errorf("%d bytes, more than the %d that fit into a variable", len(text), maxValue)
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("not a URL; " + urlForm + "; " + advice)
	}
	switch {
	case u.Opaque != "" || !slices.Contains(schemes, u.Scheme): // programs compare it by itself, not all without regard to case
		return errors.New("the scheme is missing or unknown; want http, https, socks5 or socks5h; " + urlForm)
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.ForceQuery, strings.Contains(text, "#"):
		return errors.New("more than a host and a port; " + urlForm + "; " + advice)
	case u.Host == "":
		return errors.New("no host; " + urlForm)
	}
	if err := checkUser(text); err != nil {
		return err
	}
	return checkHost(u)
}

// checkUser refuses what one parser or another would split elsewhere, and what
// Kubernetes would expand.
func checkUser(text string) error {
	scheme, rest, _ := strings.Cut(text, "://")
	if strings.ToLower(scheme) != scheme {
		return errors.New("the scheme is not in lower case")
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return nil
	}
	user := rest[:at]
	name, _, _ := strings.Cut(user, ":")
	switch {
	case strings.Contains(user, "@"):
		return errors.New("more than one @; " + advice)
	case strings.Count(user, ":") > 1:
		return errors.New("a : in the password; " + advice)
	case name == "":
		return errors.New("no user name before the password or the @")
	case strings.Contains(user, "$$"), strings.Contains(user, "$("):
		return errors.New("$$ or $( in the user name or the password, which Kubernetes expands; write $ as %24")
	}
	// No program can send these: HTTP's Basic and SOCKS5 end at some of them.
	if plain, err := url.PathUnescape(user); err != nil || strings.ContainsFunc(plain, isControl) {
		return errors.New("a control character in the user name or the password")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func checkHost(u *url.URL) error {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		if addr, err := netip.ParseAddr(host); err != nil || !addr.Is6() || addr.Zone() != "" {
			return errors.New("no IPv6 address without a zone between the brackets")
		}
	} else if host == "" || strings.ContainsFunc(host, notInName) {
		return errors.New("the host is neither a name in ASCII nor an address; " + advice)
	}
	port, written := u.Port(), strings.HasSuffix(u.Host, ":")
	if n, err := strconv.Atoi(port); written || port != "" && (err != nil || n < 1 || n > 65535) {
		return errors.New("the port is not a number from 1 to 65535")
	}
	return nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
}

// withoutUser leaves out the user info, and changes nothing else.
func withoutUser(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if at := strings.LastIndexByte(rest, '@'); ok && at >= 0 {
		return scheme + "://" + rest[at+1:]
	}
	return text
}

// plainUser is the decoded user info of a valid URL, or "".
func plainUser(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return ""
	}
	password, _ := u.User.Password()
	return u.User.Username() + ":" + password
}

func redactURL(text string) string {
	switch bare := withoutUser(text); {
	case text == "":
		return ""
	case checkURL(text) != nil:
		return "(invalid proxy URL)"
	case bare != text:
		scheme, rest, _ := strings.Cut(bare, "://")
		return scheme + "://redacted@" + rest
	}
	return text
}
