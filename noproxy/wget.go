package noproxy

import "strings"

// wgetMatcher follows sepstring in src/init.c and sufmatch in src/host.c. Wget
// compares text alone: it knows no addresses, networks, ports or asterisks.
func wgetMatcher(list string) matcher {
	var tokens []string
	if list != "" {
		for i, token := range strings.Split(list, ",") {
			if i > 0 {
				// Blanks before the first item and after any stay.
				token = strings.TrimLeft(token, " \t\n\v\f\r")
			}
			tokens = append(tokens, token)
		}
	}
	return func(t target) bool {
		if hasZone(t.host) { // refused
			return false
		}
		host := toASCII(t.host)
		for _, token := range tokens {
			if wgetMatch(host, token) {
				return true
			}
		}
		return false
	}
}

func wgetMatch(host, token string) bool {
	if !hasSuffixFold(host, token) {
		return false
	}
	rest := host[:len(host)-len(token)]
	// An empty item covers the names that end in a dot, as the source has it.
	return rest == "" || rest[len(rest)-1] == '.' || strings.HasPrefix(token, ".")
}
