package server

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/tunnel"
)

// agentProxy is the proxy that leads an agent out; the zero value is that of its
// environment.
type agentProxy struct {
	url     string // with every special character encoded; or direct
	noProxy string
	port    int // 0: none
}

// proxyPorts are those of URLs without a port.
var proxyPorts = map[string]int{"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}

// readAgentProxy reads --proxy and --no-proxy. Its errors quote no credentials.
func readAgentProxy(text string, list cli.List) (p agentProxy, err error) {
	switch {
	case text == "" && len(list) > 0:
		return p, cli.Mistake("--no-proxy is for --proxy, which is missing")
	case text == "direct" && len(list) > 0:
		return p, cli.Mistake("--no-proxy is for a proxy, and not for --proxy direct")
	case text == "", text == "direct":
		return agentProxy{url: text}, nil
	}
	u, err := dialer.ParseURL(text)
	if err != nil {
		return p, cli.Mistake("--proxy: %v", err)
	}
	// Programs differ about where a password ends that is not percent-encoded.
	if strings.Count(text, "@") > 1 {
		return p, cli.Mistake("--proxy: more than one @; percent-encode the user name and the password: @ is %%40")
	}
	// Names of Services: the tunnel's server may be one.
	hosts, err := noproxy.Cluster{Extra: list}.List()
	if err != nil {
		return p, cli.FieldMistake(err, "noproxy: cluster: Extra", "--no-proxy")
	}
	p = agentProxy{url: encodeURL(u), noProxy: hosts.String(), port: proxyPorts[u.Scheme]}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		p.port = port
	}
	if _, err := quote.EnvLine(envProxy, p.url); err != nil {
		return p, cli.Mistake("--proxy: it %v", err)
	}
	if _, err := quote.EnvLine(envNoProxy, p.noProxy); err != nil {
		return p, cli.Mistake("--no-proxy: an entry %v", err)
	}
	return p, nil
}

// encodeURL returns the URL of a proxy with the user info in letters, digits and
// percent signs, so that nothing has to quote it.
func encodeURL(u *url.URL) string {
	bare := *u
	bare.User = nil
	scheme, rest, _ := strings.Cut(bare.String(), "://")
	if u.User == nil {
		return scheme + "://" + rest
	}
	user := strings.ReplaceAll(url.QueryEscape(u.User.Username()), "+", "%20")
	if password, ok := u.User.Password(); ok {
		user += ":" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20")
	}
	return scheme + "://" + user + "@" + rest
}

// The variables that causeway-agent reads, from its environment or from the file of the
// invitation.
const envProxy, envNoProxy = "CAUSEWAY_PROXY", "CAUSEWAY_NO_PROXY"

// lines are the variables that are set. readAgentProxy has checked them.
func (p agentProxy) lines() (lines []string) {
	if p.url != "" {
		lines = append(lines, envProxy+"="+p.url)
	}
	if p.noProxy != "" {
		lines = append(lines, envNoProxy+"="+p.noProxy)
	}
	return lines
}

// targetPattern is an entry of --allow, with its ports: 0 to 0 are all.
type targetPattern struct {
	text     string
	from, to int
}

// apiTarget is what an agent may reach without --allow.
const apiTarget = "kubernetes.default.svc"

// coversAPI reports whether the pattern has the API server by its name, at port 443.
func (p targetPattern) coversAPI() bool {
	host := p.text[:strings.LastIndexByte(p.text, ':')]
	zone, wild := strings.CutPrefix(host, "*")
	return (host == apiTarget || wild && strings.HasSuffix(apiTarget, zone)) && (p.from == 0 || p.from <= 443 && 443 <= p.to)
}

// readTargets reads --allow.
func readTargets(list cli.List) (patterns []targetPattern, err error) {
	// For a context that has ended, Run returns what can't work, and nothing else.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	agent := tunnel.Agent{Credentials: new(tunnel.MemoryCredentials), Targets: tunnel.Targets{Allow: list}}
	if err := agent.Run(ended); err != nil {
		return nil, cli.FieldMistake(err, "tunnel: config: field Allow", "--allow")
	}
	for _, text := range list {
		if _, err := quote.EnvLine("", text); err != nil {
			return nil, cli.Mistake("--allow: %q %v", text, err)
		}
		p := targetPattern{text: text}
		from, to, isRange := strings.Cut(text[strings.LastIndexByte(text, ':')+1:], "-")
		if p.from, err = strconv.Atoi(from); err != nil {
			p.from = 0 // *
		}
		p.to = p.from
		if isRange {
			p.to, _ = strconv.Atoi(to)
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}
