package noproxy

import "fmt"

// Consumer is a program, or a library that programs use, which reads a no_proxy
// list. Each reads it in a way of its own. The zero Consumer is none of them.
//
// What they do was measured with real programs, some 400 questions each; the
// versions are those that were asked. The sources were read where the answers
// left something open. Other versions differ: before 7.86 curl knew no
// networks, before 8 undici took no brackets.
type Consumer int

const (
	Go       Consumer = iota + 1 // net/http and httpproxy, as [Parse] does
	Curl                         // curl and libcurl 8.22
	Wget                         // GNU Wget 1.21.3
	Urllib                       // urllib.request of Python 3.11
	Requests                     // requests 2.34.2 for Python
	Ruby                         // Net::HTTP and URI of Ruby 3.1
	Undici                       // undici 8.12.4, thus fetch of Node.js
	// JVM is java.net.http and HttpURLConnection of Java 17 with
	// http.nonProxyHosts. A JVM ignores the environment; the property takes bars
	// for commas. It is asked as though that were all that was done to the list:
	// bars and commas both separate, and white space stays a part of the items.
	// An empty list is the property that is not set.
	JVM
)

// Consumers returns all consumers, in the order of their constants.
func Consumers() []Consumer {
	return []Consumer{Go, Curl, Wget, Urllib, Requests, Ruby, Undici, JVM}
}

// String returns the name in lower case, such as "curl".
func (c Consumer) String() string {
	switch c {
	case Go:
		return "go"
	case Curl:
		return "curl"
	case Wget:
		return "wget"
	case Urllib:
		return "urllib"
	case Requests:
		return "requests"
	case Ruby:
		return "ruby"
	case Undici:
		return "undici"
	case JVM:
		return "jvm"
	}
	return fmt.Sprintf("Consumer(%d)", int(c))
}

// ParseConsumer is the inverse of [Consumer.String].
func ParseConsumer(name string) (Consumer, error) {
	for _, c := range Consumers() {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("noproxy: unknown consumer %q, want one of %v", name, Consumers())
}

// MarshalText returns the name, for JSON and flags.
func (c Consumer) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *Consumer) UnmarshalText(name []byte) (err error) {
	*c, err = ParseConsumer(string(name))
	return err
}

// Bypass reports whether the consumer connects directly to a URL with this host
// and port, if list is all that it knows. It resolves no names, though Ruby
// does, and then compares the address too.
//
// host is as in [Rules.Bypass]. port is the port in the URL. Some consumers see
// a port only if it is written, so that "https://example.com/" is not what
// "https://example.com:443/" is: for a URL without a port, port is the scheme,
// "http" or "https". With "" no item that has a port covers the host.
//
// The verdict about a URL that the consumer refuses is false, as it is for a
// Consumer that does not exist. Each call reads the whole list.
func (c Consumer) Bypass(list, host, port string) bool {
	return c.compile(list)(newTarget(host, port))
}

// matcher tells whether a target is reached directly.
type matcher func(target) bool

func (c Consumer) compile(list string) matcher {
	switch c {
	case Go:
		rules := Parse(list)
		return func(t target) bool { return rules.Bypass(t.host, t.port) }
	case Curl:
		return curlMatcher(list)
	case Wget:
		return wgetMatcher(list)
	case Urllib:
		return urllibMatcher(list)
	case Requests:
		return requestsMatcher(list)
	case Ruby:
		return rubyMatcher(list)
	case Undici:
		return undiciMatcher(list)
	case JVM:
		return jvmMatcher(list)
	}
	return func(target) bool { return false }
}

// target is what a consumer is asked about.
type target struct {
	host    string // without brackets
	written string // the port in the URL, "" if there is none
	port    string // the same, or else the one of the scheme
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
