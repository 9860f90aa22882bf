package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// finding is why a phase failed and what a person does about it.
type finding struct {
	cause  string
	advice string // sentences in the imperative
}

// maxText bounds what a step says, since others choose some of it.
const maxText = 600

func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || ended.TimedOut(err)
}

func canceledFinding(err error) (finding, bool) {
	switch {
	case errors.Is(err, route.ErrClosed):
		return finding{"the client was closed", ""}, true
	case errors.Is(err, context.Canceled):
		return finding{"the probe was canceled", ""}, true
	}
	return finding{}, false
}

// hungUp reports whether the other side ended the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// decidingError returns the error that ended a dial: the last member's of a
// Failover, that of the hop that failed in a chain. nil if err is another
// dialer's.
func decidingError(err error) *dialer.Error {
	e, ok := errors.AsType[*dialer.Error](err)
	if !ok {
		return nil
	}
	err = e.Err
	if failures, ok := errors.AsType[dialer.Failures](err); ok && len(failures) > 0 {
		err = failures[len(failures)-1].Err
	}
	return cmp.Or(decidingError(err), e)
}

// dialWay is what a finding says of a dial, besides its error.
type dialWay struct {
	target  string // the API server's host:port
	proxied bool
	noLogin bool // there is a proxy, and its URL has no user name
}

// dialFinding explains the error of a dial.
func dialFinding(err error, way dialWay) (Phase, finding) {
	if other := (*otherProtocol)(nil); errors.As(err, &other) {
		return PhaseConnect, other.finding()
	}
	e := decidingError(err)
	if e == nil {
		return foreignFinding(err, way)
	}
	phase := dialPhases[e.Phase]
	if f, ok := canceledFinding(err); ok {
		return phase, f
	}
	who, addr, field := "the API server", e.Addr, "server"
	if e.Proxy != "" {
		who, addr, field = "the proxy", e.Proxy[strings.Index(e.Proxy, "://")+len("://"):], "proxy-url"
	}
	switch e.Phase {
	case dialer.PhaseDNS:
		return phase, lookupFinding(e.Err, addr, field)
	case dialer.PhaseTCP:
		return phase, reachFinding(e.Err, who, addr, field)
	case dialer.PhaseTLS:
		return phase, proxyTLSFinding(e.Err, addr)
	case dialer.PhaseAuth:
		return phase, proxyAuthFinding(e, way)
	case dialer.PhaseConnect:
		return phase, connectFinding(e)
	}
	return PhaseConfig, finding{e.Err.Error(), "Correct " + field + " in the kubeconfig."}
}

// foreignFinding explains an error of another package's dialer, such as a tunnel's.
func foreignFinding(err error, way dialWay) (Phase, finding) {
	phase := PhaseTCP
	if way.proxied {
		phase = PhaseConnect
	}
	var unavailable interface{ Unavailable() bool } // gateway.Unavailable
	switch f, ok := canceledFinding(err); {
	case ok:
		return phase, f
	case errors.As(err, &unavailable) && unavailable.Unavailable():
		return PhaseConnect, finding{err.Error(), adviceAgent}
	}
	return phase, reachFinding(err, "the API server", way.target, "server")
}

// lookupFinding explains a failed lookup by this side.
func lookupFinding(err error, addr, field string) finding {
	host, _, _ := net.SplitHostPort(addr)
	dns, ok := errors.AsType[*net.DNSError](err)
	if ok && dns.IsNotFound {
		f := finding{"this machine finds no address for the name " + host,
			fmt.Sprintf("Correct the host in %s, or mend this machine's DNS (VPN, search domains, /etc/hosts).", field)}
		if field == "server" {
			f.advice += " If only a proxy knows the name, set proxy-url."
		}
		return f
	}
	cause := fmt.Sprintf("this machine's DNS does not answer for the name %s", host)
	if ok && !timedOut(err) {
		cause += ": " + dns.Err
	}
	return finding{cause, fmt.Sprintf("Check this machine's DNS servers (/etc/resolv.conf, VPN), and the host in %s.", field)}
}

// reachFinding explains a failed TCP connection from this side.
func reachFinding(err error, who, addr, field string) finding {
	other := ""
	if field == "server" {
		other = " If the API server is reached by a proxy only, set proxy-url."
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return finding{fmt.Sprintf("%s refuses connections: nothing listens at %s", who, addr),
			fmt.Sprintf("Start %s, or correct host and port in %s.", who, field)}
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return finding{fmt.Sprintf("this machine has no route to %s at %s", who, addr),
			"Check this machine's network and VPN." + other}
	case timedOut(err):
		return finding{fmt.Sprintf("%s does not answer at %s", who, addr),
			fmt.Sprintf("Open the firewall from this machine to %s, or correct host and port in %s.", addr, field) + other}
	}
	return finding{fmt.Sprintf("no connection to %s at %s: %v", who, addr, err),
		fmt.Sprintf("Check host and port in %s, and this machine's network.", field)}
}

const (
	adviceScheme = "Correct the scheme and port in proxy-url: http, https or socks5, as the proxy speaks."
	// placeLogin is where a password belongs. Whoever reads it may have it from an Event
	// about an annotation, which is no such place.
	placeLogin   = " in the kubeconfig's proxy-url (percent-encode : / ? # @ % and spaces); with the Kubeconfig Provider, in the Secret that the annotation route-secret names."
	adviceTicket = "Make a new ticket (causeway ticket CLUSTER), or correct user name and password" + placeLogin
	adviceLogin  = "Correct user name and password" + placeLogin
	// adviceNoLogin has a command because the form of the URL is what people look for.
	adviceNoLogin = "Set user name and password" + placeLogin + " For example: kubectl config set-cluster NAME --proxy-url=http://USER:PASSWORD@HOST:PORT"
)

// proxyAuthFinding explains a proxy's answer to credentials.
func proxyAuthFinding(e *dialer.Error, way dialWay) finding {
	var refusal *dialer.Refusal
	switch {
	case errors.As(e.Err, &refusal):
		return refusedLogin(refusal, way)
	case errors.Is(e.Err, dialer.ErrNoAuthMethod) && way.noLogin:
		return finding{"the proxy wants a user name and password, and proxy-url has none", strings.Replace(adviceNoLogin, "http://", "socks5://", 1)}
	case errors.Is(e.Err, dialer.ErrNoAuthMethod):
		return finding{"the proxy wants a login of another kind than user name and password", "Ask the proxy's operator for a login by user name and password (RFC 1929)."}
	case errors.Is(e.Err, dialer.LoginStatus(2)):
		return finding{"the proxy refuses the user name and password, with status 2: if it is a tunnel's gateway, the ticket has ended", adviceTicket}
	case errors.Is(e.Err, dialer.LoginStatus(3)):
		return finding{"the proxy refuses the user name and password, with status 3: if it is a tunnel's gateway, the ticket was revoked", adviceTicket}
	case errors.Is(e.Err, dialer.ErrLogin):
		return finding{"the proxy refuses the user name and password", adviceLogin}
	case timedOut(e.Err):
		return finding{"the proxy does not answer to the login", "Check the proxy: what it asks about users may be down."}
	case hungUp(e.Err):
		return finding{"the proxy closed the connection at the login", adviceLogin}
	}
	return finding{e.Err.Error(), adviceLogin}
}

// refusedLogin explains a 407, and tinyproxy's 401.
func refusedLogin(r *dialer.Refusal, way dialWay) finding {
	if name, _ := proxyStatus(r.Header); name == "causeway" {
		return gatewayLogin(r, way.noLogin)
	}
	schemes := r.Header.Values("Proxy-Authenticate")
	basic := len(schemes) == 0
	var offered []string
	for _, s := range schemes {
		name, _, _ := strings.Cut(strings.TrimSpace(s), " ")
		offered = append(offered, name)
		basic = basic || strings.EqualFold(name, "Basic")
	}
	switch {
	case !basic:
		return finding{fmt.Sprintf("the proxy answered %d: it wants a login by %s, and proxy-url can hold one for Basic only", r.StatusCode, strings.Join(offered, ", ")),
			"Ask the proxy's operator for Basic, or for a rule that lets this machine through."}
	case way.noLogin:
		return finding{fmt.Sprintf("the proxy answered %d: it wants a user name and password, and proxy-url has none", r.StatusCode), adviceNoLogin}
	case !way.proxied: // by a program's own dialer
		return finding{fmt.Sprintf("the proxy answered %d: user name and password are missing or wrong", r.StatusCode), adviceLogin}
	}
	return finding{fmt.Sprintf("the proxy answered %d: it refused the user name and password", r.StatusCode), adviceLogin}
}

// gatewayLogin is for a 407 of the tunnel's gateway, whose body is one line that says
// what is wrong with a ticket.
func gatewayLogin(r *dialer.Refusal, noLogin bool) finding {
	if noLogin {
		return finding{fmt.Sprintf("the tunnel's gateway answered %d: it wants a ticket or a user name and password, and proxy-url has none", r.StatusCode),
			"Make a ticket beside the tunnel's server, with: causeway ticket CLUSTER. It prints the proxy as a URL; set its user name and password" + placeLogin}
	}
	cause := r.Error()
	if line, _, _ := strings.Cut(string(r.Body), "\n"); line != "" {
		cause = fmt.Sprintf("the proxy answered %d %s", r.StatusCode, line)
	}
	return finding{"the tunnel's gateway refuses the login: " + cause,
		"Make a new ticket, with the command in the answer if it has one, and set its user name and password" + placeLogin}
}
