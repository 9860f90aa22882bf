package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/causewayproject/causeway/noproxy"
)

func explain(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("explain", flag.ContinueOnError)
	list := flags.String("list", "", "the no_proxy `list`; required")
	asJSON := flags.Bool("json", false, "write JSON")
	if err := parse(flags, args, stdout); err != nil {
		return err
	}
	switch {
	case !isSet(flags, "list"):
		return usageError{"explain: -list is required"}
	case flags.NArg() == 0:
		return usageError{"explain: no target, such as example.com:443"}
	}
	rules := noproxy.Parse(*list)
	var answers []noproxy.Explanation
	for _, arg := range flags.Args() {
		host, port, err := target(arg)
		if err != nil {
			return err
		}
		answers = append(answers, rules.Explain(host, port))
	}
	if *asJSON {
		return writeJSON(stdout, answers)
	}
	return writeExplanations(stdout, answers)
}

// target splits a host, host:port or URL.
func target(arg string) (host, port string, err error) {
	if strings.Contains(arg, "://") {
		u, err := url.Parse(arg)
		if err != nil || u.Hostname() == "" {
			return "", "", usageError{"a target is not a URL with a host"} // may hold credentials
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		return u.Hostname(), port, nil
	}
	if strings.ContainsAny(arg, "@/ ") { // no URL, and no credentials to repeat
		return "", "", usageError{"a target is a host, host:port or URL"}
	}
	if host, port, err := net.SplitHostPort(arg); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" {
			return "", "", usageError{fmt.Sprintf("target %q is not a host and a port", arg)}
		}
		return host, port, nil
	}
	host = strings.TrimSuffix(strings.TrimPrefix(arg, "["), "]")
	if host == "" {
		return "", "", usageError{"a target is a host, host:port or URL"}
	}
	return host, "", nil
}

func lint(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("lint", flag.ContinueOnError)
	list := flags.String("list", "", "the no_proxy `list`; required")
	names := flags.String("for", "", "`consumers` to ask, separated by commas; all if empty")
	asJSON := flags.Bool("json", false, "write JSON")
	if err := parse(flags, args, stdout); err != nil {
		return err
	}
	switch {
	case !isSet(flags, "list"):
		return usageError{"lint: -list is required"}
	case flags.NArg() > 0:
		return usageError{fmt.Sprintf("lint: unexpected argument %q", flags.Arg(0))}
	}
	var consumers []noproxy.Consumer
	for _, name := range split(*names) {
		c, err := noproxy.ParseConsumer(name)
		if err != nil {
			return usageError{"lint: " + err.Error()}
		}
		consumers = append(consumers, c)
	}
	findings := noproxy.Lint(*list, consumers...)
	if err := writeLint(stdout, *asJSON, findings); err != nil {
		return err
	}
	if len(findings) > 0 {
		return errFindings
	}
	return nil
}

func writeLint(stdout io.Writer, asJSON bool, findings []noproxy.Finding) error {
	if asJSON {
		return writeJSON(stdout, append([]noproxy.Finding{}, findings...)) // [], not null
	}
	if len(findings) == 0 {
		_, err := fmt.Fprintln(stdout, "no findings")
		return err
	}
	return writeFindings(stdout, findings)
}

// split splits at commas; empty parts are dropped.
func split(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
