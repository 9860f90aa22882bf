package proxyconfig

import (
	"cmp"
	"errors"
	"net/url"
	"strings"

	"github.com/causewayproject/causeway/noproxy"
)

// JVMProperties returns the system properties of a JVM, which reads no
// environment, and what the list could not say to it.
//
// The JDK itself takes no user name and password from http.proxyUser and
// http.proxyPassword, but Gradle, Maven's resolver and other programs do; they
// are decoded here, and left out if the URL has no user info. A JVM speaks no TLS to a
// proxy: the scheme https is a [*FieldError], besides those of
// [Config.Validate].
func (c Config) JVMProperties() ([]Var, []noproxy.Finding, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	var vars []Var
	var errs []error
	list, findings := noproxy.ParseList(c.NoProxy, "").JVM()
	socks := ""
	for _, p := range []struct{ field, prefix, proxy string }{
		{"HTTPProxy", "http", c.HTTPProxy}, {"HTTPSProxy", "https", c.HTTPSProxy},
	} {
		u, err := url.Parse(p.proxy)
		switch {
		case err != nil || p.proxy == "":
		case u.Scheme == "https":
			errs = append(errs, fieldErrorf(p.field, "a JVM speaks no TLS to a proxy; want http or socks5"))
		case u.Scheme != "http" && socks != "" && socks != p.proxy:
			errs = append(errs, fieldErrorf(p.field, "a JVM has one SOCKS proxy, and HTTPProxy is another one"))
		case u.Scheme != "http":
			if socks == "" {
				vars = append(vars, proxyProperties(u, "socksProxyHost", "socksProxyPort", "java.net.socks.username", "java.net.socks.password", "1080")...)
			}
			socks = p.proxy
		default:
			vars = append(vars, proxyProperties(u, p.prefix+".proxyHost", p.prefix+".proxyPort", p.prefix+".proxyUser", p.prefix+".proxyPassword", "80")...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	if list != "" {
		vars = append(vars, Var{"http.nonProxyHosts", list}) // for https too
		if socks != "" {
			vars = append(vars, Var{"socksNonProxyHosts", list})
		}
	}
	return vars, findings, nil
}

// proxyProperties has the port always: a JVM takes 443 for an https target's.
func proxyProperties(u *url.URL, host, port, user, password, defaultPort string) []Var {
	vars := []Var{{host, u.Hostname()}, {port, cmp.Or(u.Port(), defaultPort)}}
	if u.User != nil {
		vars = append(vars, Var{user, u.User.Username()})
		if secret, ok := u.User.Password(); ok {
			vars = append(vars, Var{password, secret})
		}
	}
	return vars
}

// JVMArguments returns the properties as a file of arguments: java @file, or
// JDK_JAVA_OPTIONS=@file. Java reads it by its locale, and only ASCII where that is C, as
// in most containers: a user name or a password with another character is a
// [*FieldError]. Findings and the other errors are those of
// [Config.JVMProperties].
func (c Config) JVMArguments() (string, []noproxy.Finding, error) {
	vars, findings, err := c.JVMProperties()
	if err != nil {
		return "", nil, err
	}
	var errs []error
	for _, v := range c.upperCaseVars() {
		if strings.ContainsFunc(plainUser(v.Value), func(r rune) bool { return r > 0x7f }) {
			errs = append(errs, fieldErrorf(fieldNames[v.Name], "the user name or the password has a character that is not ASCII, which java reads by its locale; choose another password, or set JVMProperties in the program"))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", nil, err
	}
	var b strings.Builder
	for _, v := range vars {
		b.WriteString(`"` + javaEscaper.Replace("-D"+v.Name+"="+v.Value) + "\"\n")
	}
	return b.String(), findings, nil
}

// javaEscaper is for what is between quotes in an argument file of the java command.
var javaEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
