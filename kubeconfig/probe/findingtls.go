package probe

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// handshakeDetail is what a handshake agreed on.
func handshakeDetail(s tls.ConnectionState, insecure bool) string {
	text := tls.VersionName(s.Version)
	if s.NegotiatedProtocol != "" {
		text += ", " + s.NegotiatedProtocol
	}
	if len(s.PeerCertificates) > 0 {
		cert := s.PeerCertificates[0]
		text += fmt.Sprintf(", certificate %q of %q until %s", nameOf(cert), issuerName(cert), formatDay(cert.NotAfter))
	}
	if insecure {
		text += ", not verified (insecure-skip-tls-verify)"
	}
	return text
}

func issuerName(cert *x509.Certificate) string {
	return cmp.Or(cert.Issuer.CommonName, cert.Issuer.String())
}

// tlsFinding explains why the handshake with the API server failed.
func (p *probing) tlsFinding(err error) finding {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		verify   *tls.CertificateVerificationError
		invalid  x509.CertificateInvalidError
	)
	if f, ok := canceledFinding(err); ok {
		return f
	}
	switch {
	case errors.As(err, &hostname):
		return wrongName(hostname)
	case errors.As(err, &unknown) && unknown.Cert != nil:
		errors.As(err, &verify)
		return p.wrongAuthority(topOf(unknown.Cert, verify))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return notNow(invalid.Cert, "the API server's certificate", "Renew it on the control plane (kubeadm certs renew apiserver)")
	}
	return p.brokenHandshake(err)
}

// brokenHandshake explains a handshake that ends before a certificate is judged.
func (p *probing) brokenHandshake(err error) finding {
	addr := route.AddressOf(p.server)
	through := ""
	if p.report.Route != "direct" {
		through = " Check as well where the proxy's connection ends."
	}
	var record tls.RecordHeaderError
	alert, alerted := alertOf(err)
	switch {
	case errors.As(err, &record) && bytes.Equal(record.RecordHeader[:], []byte("HTTP/")):
		return finding{addr + " answers in plain HTTP, not TLS",
			"Correct the port in server; if a proxy's page answers in its place, have " + addr + " let through." + through}
	case errors.As(err, &record):
		return finding{addr + " does not speak TLS: its answer begins with " + fmt.Sprintf("%q", record.RecordHeader[:]),
			"Correct the port in server: it is not an API server's." + through}
	case alerted:
		return p.alertFinding(alert)
	case timedOut(err):
		return finding{addr + " takes the connection, and does not answer to TLS",
			"Check that the port in server is the API server's, that it is not overloaded, and that no firewall or too small an MTU on the way (VPN, tunnel) swallows large packets." + through}
	case hungUp(err):
		return finding{addr + " closed the connection in the TLS handshake",
			"Check that something listens behind the load balancer, and that no firewall on the way filters by server name (tls-server-name)." + through}
	}
	return finding{"TLS with the API server fails: " + err.Error(), "Check what listens at " + addr + "." + through}
}

func wrongName(err x509.HostnameError) finding {
	names := slices.Clone(err.Certificate.DNSNames)
	f := finding{cause: fmt.Sprintf("the API server's certificate is not for %s, but for %s", err.Host, certificateNames(err.Certificate))}
	switch {
	case slices.Contains(names, entry.InCluster):
		f.advice = "Set tls-server-name: " + entry.InCluster + " in the cluster entry, or add " + err.Host + " to the certificate's names (kubeadm: apiServer.certSANs)."
	case len(names) > 0:
		f.advice = "If this is the right cluster, set tls-server-name in the cluster entry to one of these names; if not, correct server."
	default:
		f.advice = "Correct server, or have a certificate made that is for " + err.Host + "."
	}
	return f
}

// certificateNames returns a certificate's names.
func certificateNames(cert *x509.Certificate) string {
	const most = 8
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) == 0:
		return fmt.Sprintf("no name (%q)", nameOf(cert))
	case len(names) > most:
		names = append(names[:most], "...")
	}
	return strings.Join(names, ", ")
}

// topOf returns the last certificate of the chain that the other side sent: its
// issuer is what had to be known.
func topOf(cert *x509.Certificate, verify *tls.CertificateVerificationError) *x509.Certificate {
	if verify == nil || len(verify.UnverifiedCertificates) == 0 {
		return cert
	}
	chain := verify.UnverifiedCertificates
	cert = chain[0]
	for range chain {
		i := slices.IndexFunc(chain, func(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, cert.RawIssuer) })
		if i < 0 {
			break
		}
		cert = chain[i]
	}
	return cert
}

// wrongAuthority explains a certificate that the kubeconfig's CA has not issued.
func (p *probing) wrongAuthority(cert *x509.Certificate) finding {
	const advice = "Put this cluster's CA into certificate-authority-data (with Cluster API, tls.crt of the Secret <cluster>-ca), or correct server and proxy-url if they lead to another cluster."
	trusted := field.FindCertificates(p.creds.TLS.CAData)
	if len(trusted) == 0 {
		return finding{fmt.Sprintf("the API server's certificate is issued by %q, which this machine does not trust, and the kubeconfig has no CA", issuerName(cert)), advice}
	}
	var subjects []string
	for _, ca := range trusted {
		if bytes.Equal(ca.RawSubject, cert.RawIssuer) {
			return finding{fmt.Sprintf("the API server's certificate is issued by another CA of the name %q than the kubeconfig's: the keys differ", issuerName(cert)),
				"Check whether the cluster was made anew, or its CA replaced. " + advice}
		}
		if name := fmt.Sprintf("%q", nameOf(ca)); !slices.Contains(subjects, name) {
			subjects = append(subjects, name)
		}
	}
	return finding{fmt.Sprintf("the API server's certificate is issued by %q, and the kubeconfig trusts %s", issuerName(cert), strings.Join(subjects, ", ")),
		fmt.Sprintf("%s If %q is a firewall's or proxy's CA, it opens TLS: have the API server exempted from that.", advice, issuerName(cert))}
}

func notNow(cert *x509.Certificate, what, renew string) finding {
	now := time.Now()
	if now.Before(cert.NotBefore) {
		return finding{what + " is not valid before " + formatMoment(cert.NotBefore) + ", by this machine's clock", "Set this machine's clock right, or the other side's."}
	}
	return finding{what + " expired on " + formatMoment(cert.NotAfter), renew + ", or set this machine's clock right."}
}

// alertOf returns the TLS alert (RFC 8446, section 6) with which the other
// side ended the connection. crypto/tls does not export the type.
func alertOf(err error) (uint8, bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}
	if v := reflect.ValueOf(op.Err); v.Kind() == reflect.Uint8 {
		return uint8(v.Uint()), true
	}
	return 0, false
}

// alertFinding explains an alert of the API server, or of a load balancer that ends TLS
// before it.
func (p *probing) alertFinding(alert uint8) finding {
	text := tls.AlertError(alert).Error()
	switch alert {
	case 42, 43, 46, 48: // bad, unsupported or unknown certificate, unknown CA
		return p.user.refusedFinding(finding{"the API server does not accept the client certificate: " + text,
			"Get a new kubeconfig: the client certificate is not of the CA that this cluster trusts for clients."})
	case 44, 45: // revoked, expired
		return p.user.refusedFinding(finding{"the API server holds the client certificate for revoked or expired: " + text,
			"Get a new kubeconfig with a new client certificate, or set the clocks right."})
	case 116: // certificate required
		return finding{"the API server wants a client certificate, and there is none: " + text,
			"Put a client certificate into the user entry."}
	case 70, 71, 86: // protocol version, insufficient security, inappropriate fallback
		return finding{"the API server and this program have no version of TLS in common: " + text, "Have TLS 1.2 or 1.3 allowed on the other side."}
	case 112: // unrecognized name
		return finding{"nothing is known there by this server name: " + text, "Correct tls-server-name, or the host in server: a gateway or load balancer finds the cluster by it."}
	}
	return finding{"the API server ended the TLS handshake: " + text, "Read the log of what listens there: it says why."}
}

// inProxyTLS is where a kubeconfig says what it can't say of an https proxy by itself.
const inProxyTLS = " in proxyTLS of the kubeconfig's clusters[].cluster.extensions (" + entry.ExtensionName + ")."

// proxyTLSFinding explains why the handshake with an https proxy failed.
func proxyTLSFinding(err error, addr string) finding {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		record   tls.RecordHeaderError
	)
	alert, alerted := alertOf(err)
	switch {
	case errors.As(err, &hostname):
		return finding{fmt.Sprintf("the proxy's certificate is not for %s, but for %s", hostname.Host, certificateNames(hostname.Certificate)),
			"Write one of these names into the kubeconfig's proxy-url, or as serverName" + inProxyTLS}
	case errors.As(err, &unknown) && unknown.Cert != nil:
		return finding{fmt.Sprintf("the proxy's certificate is issued by %q, which is not trusted for the proxy", issuerName(unknown.Cert)),
			"Add the proxy's CA to this machine's roots, or set it as certificateAuthorityData" + inProxyTLS + " The certificate-authority-data of the cluster entry is for the API server only."}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return notNow(invalid.Cert, "the proxy's certificate", "Have it renewed")
	case errors.As(err, &record):
		return finding{"what listens at " + addr + " does not speak TLS: it is not an https proxy", "Write http:// or socks5:// in proxy-url, or the port of the proxy that speaks TLS."}
	case alerted && (alert == 42 || alert == 116 || alert == 48 || alert == 40):
		return finding{"the proxy does not accept us in the TLS handshake: " + tls.AlertError(alert).Error(),
			"If the proxy wants a client certificate, set clientCertificate and clientKey" + inProxyTLS}
	case timedOut(err):
		return finding{"the proxy does not answer to TLS", adviceScheme}
	case hungUp(err):
		return finding{"the proxy closed the connection in the TLS handshake", adviceScheme}
	}
	return finding{"TLS with the proxy fails: " + err.Error(), adviceScheme}
}
