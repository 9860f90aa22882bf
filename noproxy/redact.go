package noproxy

import (
	"slices"
	"strings"
)

// redacted stands for an item that may hold credentials.
const redacted = "redacted"

// redactItems returns the items of a list as they may be shown. Those that may
// hold credentials are hidden: URLs, user info, and what lies between the two,
// since a comma in a password splits it over several items.
func redactItems(items []string) []string {
	shown := slices.Clone(items)
	last := -1 // item that ends user info
	for i, item := range items {
		if strings.Contains(item, "@") {
			last = i
		}
	}
	open := false // inside a URL whose user info has not ended
	for i, item := range items {
		scheme, _, url := strings.Cut(item, "://")
		at := strings.Contains(item, "@")
		if url {
			shown[i] = redactURL(scheme)
		} else if at || open {
			shown[i] = redacted
		}
		open = (open || url) && !at && i < last
	}
	return shown
}

// redactURL leaves a well-known scheme of a URL and nothing else: where the user
// info of a malformed one ends is anyone's guess.
func redactURL(scheme string) string {
	switch scheme = strings.ToLower(strings.TrimSpace(scheme)); scheme {
	case "http", "https", "socks5", "socks5h":
		return scheme + "://" + redacted
	}
	return redacted
}
