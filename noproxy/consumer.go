package noproxy

import "fmt"

// Consumer is a program, or a library, that reads a no_proxy list. Each reads it
// differently. The zero Consumer is none of them.
//
// The verdicts were measured with real programs of the versions below, some 400
// questions each. Where the answers left something open, the source was read.
// Other versions differ: before 7.86 curl knew no networks, before 8 undici took no
// brackets.
type Consumer int

const (
	Go       Consumer = iota + 1 // net/http and httpproxy, as [Parse] does
	Curl                         // curl and libcurl 8.22
	Wget                         // GNU Wget 1.21.3
	Urllib                       // urllib.request of Python 3.11
	Requests                     // requests 2.34.2 for Python
	Ruby                         // Net::HTTP and URI of Ruby 3.1
	Undici                       // undici 8.12.4, thus fetch of Node.js
	// JVM is java.net.http and HttpURLConnection of Java 17 with the property
	// http.nonProxyHosts: a JVM ignores the environment. The property separates its
	// items by bars. Here bars and commas both separate, and white space is part of
	// an item. An empty list stands for a property that is not set.
	JVM
)

// consumers has what is known of each Consumer, in the order of the constants.
var consumers = [...]struct {
	name    string
	matcher func(list string) matcher
}{
	Go:       {"go", goMatcher},
	Curl:     {"curl", curlMatcher},
	Wget:     {"wget", wgetMatcher},
	Urllib:   {"urllib", urllibMatcher},
	Requests: {"requests", requestsMatcher},
	Ruby:     {"ruby", rubyMatcher},
	Undici:   {"undici", undiciMatcher},
	JVM:      {"jvm", jvmMatcher},
}

func (c Consumer) isKnown() bool { return c > 0 && int(c) < len(consumers) }

// Consumers returns all consumers, in the order of their constants.
func Consumers() []Consumer {
	var all []Consumer
	for c := Go; c.isKnown(); c++ {
		all = append(all, c)
	}
	return all
}

// String returns the name in lower case, such as "curl".
func (c Consumer) String() string {
	if c.isKnown() {
		return consumers[c].name
	}
	return fmt.Sprintf("Consumer(%d)", int(c))
}

// ParseConsumer returns the Consumer of a name, such as "curl". For an unknown name
// it returns zero and an error that lists the names.
func ParseConsumer(name string) (Consumer, error) {
	for _, c := range Consumers() {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("noproxy: unknown consumer %q, want one of %v", name, Consumers())
}

// MarshalText returns the name, for JSON and flags. The error is always nil.
func (c Consumer) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText sets c to the Consumer of a name. The error is ParseConsumer's.
func (c *Consumer) UnmarshalText(name []byte) (err error) {
	*c, err = ParseConsumer(string(name))
	return err
}

// Bypass reports whether the consumer connects directly to a URL with this host
// and port, if list is its only setting. It resolves no names. (Ruby does, and then
// compares the address too.)
//
// host is as in [Rules.Bypass]. port is the port in the URL. For a URL without a
// port it is the scheme, "http" or "https", since some consumers tell
// "https://example.com/" from "https://example.com:443/". With "" no item with a
// port covers the host.
//
// Bypass returns false for a URL that the consumer refuses, and for a Consumer that
// does not exist. Each call reads the whole list. Bypass is safe for concurrent
// use.
func (c Consumer) Bypass(list, host, port string) bool {
	return c.newMatcher(list)(newTarget(host, port))
}

// matcher reports whether a target is reached directly.
type matcher func(target) bool

func (c Consumer) newMatcher(list string) matcher {
	if c.isKnown() {
		return consumers[c].matcher(list)
	}
	return func(target) bool { return false }
}

func goMatcher(list string) matcher {
	rules := Parse(list)
	return func(t target) bool { return rules.Bypass(t.host, t.port) }
}

// target is what a consumer is asked about.
type target struct {
	host    string // without brackets
	written string // the port in the URL, or ""
	port    string // the port in the URL, or the scheme's default
}

func newTarget(host, port string) target {
	switch port {
	case "http":
		return target{host: host, port: "80"}
	case "https":
		return target{host: host, port: "443"}
	}
	return target{host, port, port}
}
