package noproxy

import "strings"

// jvmDefaults is what sun.net.spi.DefaultProxySelector adds to any value of
// http.nonProxyHosts.
const jvmDefaults = "localhost|127.*|[::1]|0.0.0.0|[::0]"

// jvmMatcher follows sun.net.spi.DefaultProxySelector. It compares text: a
// pattern is a host, with an asterisk at either end.
func jvmMatcher(list string) matcher {
	var patterns []jvmPattern
	list = strings.ReplaceAll(list, ",", "|") + "|" + jvmDefaults
	for item := range strings.SplitSeq(list, "|") {
		if item = strings.ToLower(strings.TrimSpace(item)); item != "" {
			patterns = append(patterns, newJVMPattern(item))
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
