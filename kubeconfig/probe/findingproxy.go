package probe

import (
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/causewayproject/causeway/dialer"
)

const adviceAgent = "Start the tunnel's agent in the cluster, and read its log: it has to reach the tunnel's server, and to be of this cluster."

// connectFinding explains why a proxy does not connect.
func connectFinding(e *dialer.Error) finding {
	var (
		refusal *dialer.Refusal
		reply   dialer.SOCKSReply
	)
	switch _, alerted := alertOf(e.Err); {
	case alerted: // in TLS 1.3 the proxy judges our certificate after the handshake
		return proxyTLSFinding(e.Err, e.Addr)
	case errors.As(e.Err, &refusal):
		return refusalFinding(refusal, e.Addr)
	case errors.As(e.Err, &reply):
		return replyFinding(reply, e.Addr)
	case timedOut(e.Err):
		return finding{fmt.Sprintf("the proxy does not answer to the request for %s", e.Addr),
			fmt.Sprintf("Check that the proxy reaches %s: a firewall behind it may drop the packets. If the proxy is a tunnel's gateway, the cluster's agent may hang: look at the server's page. ", e.Addr) + adviceScheme}
	case hungUp(e.Err):
		return finding{"the proxy closed the connection without an answer",
			adviceScheme + " If it is right, let the proxy's operator look for this machine's address in its rules."}
	}
	return finding{e.Err.Error(), adviceScheme}
}

// isOfTunnel reports whether a tunnel's gateway, or a tunnel's own dialer, says that it does
// not connect.
func isOfTunnel(err error) bool {
	var (
		refusal     *dialer.Refusal
		unavailable interface{ Unavailable() bool }
	)
	if e := decidingError(err); e != nil && errors.As(e.Err, &refusal) {
		name, _ := proxyStatus(refusal.Header)
		return name == "causeway" && refusal.StatusCode != http.StatusBadRequest // which is about the request
	}
	return errors.As(err, &unavailable) && unavailable.Unavailable()
}

// A proxyErrorKind is what a proxy's own error code means.
type proxyErrorKind int

const (
	kindNone proxyErrorKind = iota
	kindForbidden
	kindDenied // for this client
	kindNoName
	kindRefused
	kindTimeout
	kindNoRoute
	kindUnavailable
	kindLimit
)

// proxyErrorKinds are the codes of squid (X-Squid-Error) and of Proxy-Status
// (RFC 9209, section 2.3).
var proxyErrorKinds = map[string]proxyErrorKind{
	"ERR_ACCESS_DENIED":         kindForbidden,
	"ERR_DNS_FAIL":              kindNoName,
	"ERR_CONNECT_FAIL":          kindRefused,
	"ERR_CANNOT_FORWARD":        kindNoRoute,
	"http_request_denied":       kindDenied,
	"destination_ip_prohibited": kindForbidden,
	"dns_error":                 kindNoName,
	"dns_timeout":               kindNoName,
	"destination_not_found":     kindNoName,
	"connection_refused":        kindRefused,
	"connection_timeout":        kindTimeout,
	"destination_ip_unroutable": kindNoRoute,
	"destination_unavailable":   kindUnavailable,
	"connection_limit_reached":  kindLimit,
}

// proxyStatus reads the last member of Proxy-Status, the proxy next to us.
func proxyStatus(h http.Header) (name string, kind proxyErrorKind) {
	if squid, _, _ := strings.Cut(h.Get("X-Squid-Error"), " "); squid != "" {
		return "squid", proxyErrorKinds[squid]
	}
	name, value := proxyStatusParam(strings.Join(h.Values("Proxy-Status"), ","), "error")
	return name, proxyErrorKinds[value]
}

// proxyStatusParam returns the last member's name and its parameter; empty without one.
func proxyStatusParam(status, key string) (name, value string) {
	members := splitUnquoted(status, ',')
	params := splitUnquoted(members[len(members)-1], ';')
	for _, param := range params[1:] {
		if k, v, _ := strings.Cut(strings.TrimSpace(param), "="); k == key {
			value = v
			break
		}
	}
	return strings.TrimSpace(params[0]), value
}

// nextHop returns who has connected the target, as our gateway says.
func nextHop(status string) string {
	name, value := proxyStatusParam(status, "next-hop")
	hop, err := strconv.Unquote(value)
	if name != "causeway" || err != nil {
		return ""
	}
	return hop
}

// splitUnquoted splits at sep, but not within quotes (RFC 8941).
func splitUnquoted(s string, sep byte) []string {
	var parts []string
	begin, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			parts = append(parts, s[begin:i])
			begin = i + 1
		}
	}
	return append(parts, s[begin:])
}

// refusalFinding explains an HTTP proxy's refusal.
func refusalFinding(r *dialer.Refusal, addr string) finding {
	name, kind := proxyStatus(r.Header)
	if name == "causeway" && kind == kindUnavailable {
		return finding{"the tunnel's gateway has no way into the cluster: " + r.Error(),
			adviceAgent}
	}
	switch {
	case r.StatusCode == http.StatusBadRequest && name == "" && strings.Contains(r.Error(), "SOCKS"): // as the gateway's SOCKS5 door says
		return finding{"what answers at proxy-url is no HTTP proxy: " + r.Error(), "Write socks5:// in place of http:// in the kubeconfig's proxy-url, if that is the right proxy."}
	case r.StatusCode == http.StatusForbidden || kind == kindForbidden || kind == kindDenied:
		return forbiddenFinding(r, name, kind, addr)
	case r.StatusCode == http.StatusMethodNotAllowed, r.StatusCode == http.StatusNotImplemented,
		r.StatusCode == http.StatusBadRequest && name == "", r.StatusCode == http.StatusNotFound:
		return finding{"what answers at proxy-url does not do CONNECT: " + r.Error(),
			"Point proxy-url to a forward proxy: this may be a web server, or a port of the proxy that is for something else."}
	case r.StatusCode/100 == 3:
		return finding{"what answers at proxy-url sends elsewhere: " + r.Error(), "Point proxy-url to the proxy itself, or log in where it sends a browser."}
	case r.StatusCode == http.StatusTooManyRequests, kind == kindLimit:
		return finding{"the proxy limits its clients: " + r.Error(), "Wait, close some connections, or have the limit raised (of a tunnel's server: --limits)."}
	}
	if f, ok := unreachedFinding(kind, addr); ok {
		if name == "causeway" {
			return finding{"the tunnel's agent is connected, and does not reach " + addr + ": " + r.Error(),
				"Check server in the kubeconfig, and from the agent's host that it resolves and reaches " + addr + "."}
		}
		f.cause += ": " + r.Error()
		return f
	}
	if r.StatusCode >= http.StatusBadGateway && r.StatusCode <= http.StatusGatewayTimeout {
		return finding{fmt.Sprintf("the proxy can't reach %s: %v", addr, r), adviceBehind(addr)}
	}
	return finding{r.Error() + errorPage(r.Header), "Ask the proxy's operator, with this answer and the address " + addr + "."}
}

func adviceBehind(addr string) string {
	return fmt.Sprintf("Check server in the kubeconfig, and from the proxy's host that it resolves and reaches %s.", addr)
}

func forbiddenFinding(r *dialer.Refusal, name string, kind proxyErrorKind, addr string) finding {
	_, port, _ := net.SplitHostPort(addr)
	switch {
	case name == "causeway" && kind == kindDenied:
		return finding{"the tunnel's gateway knows this client, and does not let it in: " + r.Error(),
			"If the ticket is for another cluster, make one for this cluster (causeway ticket CLUSTER), and set its user name and password" + placeLogin}
	case name == "causeway":
		return finding{"the tunnel does not allow the connection: " + r.Error(),
			fmt.Sprintf("Add %s to --allow of causeway-agent, or correct server in the kubeconfig.", addr)}
	}
	f := finding{cause: fmt.Sprintf("the proxy does not allow CONNECT to %s: %v%s", addr, r, errorPage(r.Header))}
	f.advice = fmt.Sprintf("Allow CONNECT to %s in the proxy's rules", addr)
	if port != "443" {
		f.advice += fmt.Sprintf("; many allow only port 443 (squid: acl SSL_ports port %s)", port)
	}
	f.advice += "."
	return f
}

// errorPage says that an answer is meant for a browser.
func errorPage(h http.Header) string {
	if kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")); kind == "text/html" {
		return " (with a web page)"
	}
	return ""
}

const adviceName = "Correct the host in server, or mend the proxy's DNS: it is the proxy that resolves this name."

// unreachedFindings are what a proxy says of the way behind it. HOST and ADDR are the target's.
var unreachedFindings = map[proxyErrorKind]finding{
	kindNoName:      {"the proxy finds no address for the name HOST", adviceName},
	kindRefused:     {"the proxy reaches nothing at ADDR: the connection is refused or fails", "Correct host and port in server, and check that the API server runs and lets the proxy's address in."},
	kindTimeout:     {"the proxy gets no answer from ADDR", "Open the firewall from the proxy to ADDR, or correct server."},
	kindNoRoute:     {"the proxy has no route to ADDR", "Correct server, or use a proxy in the cluster's network."},
	kindUnavailable: {"the proxy has no way to ADDR now", adviceBehind("ADDR")},
}

func unreachedFinding(kind proxyErrorKind, addr string) (finding, bool) {
	f, ok := unreachedFindings[kind]
	host, _, _ := net.SplitHostPort(addr)
	fill := strings.NewReplacer("HOST", host, "ADDR", addr)
	return finding{fill.Replace(f.cause), fill.Replace(f.advice)}, ok
}

// replyKinds are the codes of a SOCKS5 proxy (RFC 1928, section 6).
var replyKinds = map[dialer.SOCKSReply]proxyErrorKind{3: kindNoRoute, 4: kindNoRoute, 5: kindRefused, 6: kindTimeout}

// replyFinding explains a SOCKS5 proxy's reply.
func replyFinding(r dialer.SOCKSReply, addr string) finding {
	f, ok := unreachedFinding(replyKinds[r], addr)
	host, _, _ := net.SplitHostPort(addr)
	switch {
	case r == 2:
		f = finding{"the proxy does not allow connections to " + addr,
			fmt.Sprintf("Allow %s in the proxy's rules. If the proxy is a tunnel's gateway: add it to --allow of causeway-agent.", addr)}
	case r == 3:
		f.advice += " If the proxy is a tunnel's gateway: start the tunnel's agent in the cluster."
	case r == 4 && net.ParseIP(host) == nil:
		f = finding{"the proxy has no route to " + addr + ", or finds no address for its name", adviceName}
	case r == 7 || r == 8:
		return finding{r.Error(), "Use another proxy: this one can't do what is needed."}
	case !ok:
		f = finding{"the proxy can't reach " + addr, adviceBehind(addr)}
	}
	f.cause += ": " + r.Error()
	return f
}
