package proxyconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/causewayproject/causeway/noproxy"
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

// AptConfig returns a file for /etc/apt/apt.conf.d. apt knows no domains and
// networks there: each name and IPv4 address of the list is DIRECT by itself. For
// the others it takes the variable no_proxy, as a list of ends of names. It
// takes socks5h, and no socks5: that is a [*FieldError], besides those of
// [Config.Validate].
func (c Config) AptConfig() (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	var b strings.Builder
	var errs []error
	for _, p := range []struct{ field, scheme, proxy string }{
		{"HTTPProxy", "http", c.HTTPProxy}, {"HTTPSProxy", "https", c.HTTPSProxy},
	} {
		if p.proxy == "" {
			continue
		}
		if strings.HasPrefix(p.proxy, "socks5://") {
			errs = append(errs, fieldErrorf(p.field, "apt takes the scheme socks5h, not socks5"))
		}
		fmt.Fprintf(&b, "Acquire::%s::Proxy \"%s\";\n", p.scheme, p.proxy)
		for _, e := range noproxy.ParseList(c.NoProxy, "") {
			if !strings.HasPrefix(e.Text, ".") && !strings.ContainsFunc(e.Text, notInName) {
				fmt.Fprintf(&b, "Acquire::%s::Proxy::%s \"DIRECT\";\n", p.scheme, e.Text)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return b.String(), nil
}

// NPMConfig returns an .npmrc. npm takes no networks in the list. An error is
// that of [Config.Validate].
func (c Config) NPMConfig() (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, v := range []Var{{"proxy", c.HTTPProxy}, {"https-proxy", c.HTTPSProxy}, {"noproxy", c.NoProxy}} {
		if v.Value != "" {
			// Without quotes a ; begins a comment. Valid values have no " and no
			// backslash, and no ${, which npm expands.
			b.WriteString(v.Name + "=\"" + v.Value + "\"\n")
		}
	}
	return b.String(), nil
}

// GitConfig returns a section for a .gitconfig. git has one proxy for all URLs,
// which is HTTPSProxy, or HTTPProxy if that is "". It has no word for a list,
// but takes it from the variable NO_PROXY, with this section too.
//
// With a libcurl before 8.8 (2024) git decodes a password twice, wherever it is
// from, and one that has a % before two hexadecimal digits becomes another: that is
// a [*FieldError], besides those of [Config.Validate].
func (c Config) GitConfig() (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	field, proxy := "HTTPSProxy", c.HTTPSProxy
	if proxy == "" {
		field, proxy = "HTTPProxy", c.HTTPProxy
	}
	if proxy == "" {
		return "", nil
	}
	if looksEncoded.MatchString(plainUser(proxy)) {
		return "", fieldErrorf(field, "the user name or the password itself has a %% before two hexadecimal digits, which git with a libcurl before 8.8 decodes again; choose another password")
	}
	// In quotes, as a ; or a # would begin a comment.
	return "[http]\n\tproxy = \"" + proxy + "\"\n", nil
}

var looksEncoded = regexp.MustCompile("%[0-9A-Fa-f]{2}")
