package noproxy

import "strings"

// jvmDefaults is what sun.net.spi.DefaultProxySelector adds to a value of
// http.nonProxyHosts, and has if the property is not set.
const jvmDefaults = "localhost|127.*|[::1]|0.0.0.0|[::0]"

// jvmMatcher follows sun.net.spi.DefaultProxySelector. It compares text: a
// pattern is a host, with an asterisk at either end. White space is a part of
// it, so that a pattern with a blank before or after it matches no host.
func jvmMatcher(list string) matcher {
	var patterns []jvmPattern
	list = strings.ReplaceAll(list, ",", "|") + "|" + jvmDefaults
	for item := range strings.SplitSeq(list, "|") {
		if item != "" {
			patterns = append(patterns, newJVMPattern(strings.ToLower(item)))
		}
	}
	return func(t target) bool {
		host := strings.ToLower(t.host)
		if host == "" {
			return false
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		for _, p := range patterns {
			if p.match(host) {
				return true
			}
		}
		return false
	}
}

type jvmPattern struct {
	text            string
	anyHead, anyEnd bool
}

func newJVMPattern(item string) jvmPattern {
	text, head := strings.CutPrefix(item, "*")
	text, end := strings.CutSuffix(text, "*")
	return jvmPattern{text, head, end}
}

func (p jvmPattern) match(host string) bool {
	switch {
	case p.anyHead && p.anyEnd:
		return strings.Contains(host, p.text)
	case p.anyHead:
		return strings.HasSuffix(host, p.text)
	case p.anyEnd:
		return strings.HasPrefix(host, p.text)
	}
	return host == p.text
}
