package probe

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// userFacts is what shows of a user entry's credentials without asking anyone.
type userFacts struct {
	cert    *x509.Certificate // nil: none
	token   bool
	broken  bool      // the token can't be sent
	expires time.Time // the token's, if a JWT says so
	exec    bool
	plugin  string // the name of an exec or auth provider plugin
	basic   bool
}

func userOf(entry *clientcmdapi.AuthInfo, creds *transport.Config) userFacts {
	u := userFacts{token: creds.BearerToken != "", basic: creds.Username != ""}
	if certs := field.FindCertificates(creds.TLS.CertData); len(certs) > 0 {
		u.cert = certs[0]
	}
	if u.token {
		u.broken = !httpguts.ValidHeaderFieldValue(creds.BearerToken)
		u.expires = expiryOf(creds.BearerToken)
	}
	if entry == nil || u.cert != nil || u.token || u.basic {
		return u
	}
	switch {
	case entry.Exec != nil:
		u.exec, u.plugin = true, filepath.Base(entry.Exec.Command)
	case entry.AuthProvider != nil:
		u.plugin = entry.AuthProvider.Name
	}
	return u
}

// isEmpty reports whether there are no credentials at all.
func (u userFacts) isEmpty() bool { return u.cert == nil && !u.token && !u.basic && u.plugin == "" }

// String says which credentials there are.
func (u userFacts) String() string {
	switch {
	case u.token && !u.expires.IsZero():
		return "token until " + formatDay(u.expires)
	case u.token:
		return "token"
	case u.basic:
		return "user name and password"
	case u.cert != nil:
		return fmt.Sprintf("client certificate %q until %s", nameOf(u.cert), formatDay(u.cert.NotAfter))
	case u.exec:
		return "exec plugin " + u.plugin
	case u.plugin != "":
		return "auth provider " + u.plugin
	}
	return "no credentials"
}

// expiryOf returns when a JWT says that it expires (RFC 7519, section 4.1.4).
// Nothing is verified: the API server does that.
func expiryOf(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	var claims struct {
		Expires json.Number `json:"exp"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return time.Time{}
	}
	seconds, err := claims.Expires.Float64()
	if err != nil || seconds <= 0 || seconds > 1e11 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

var errBrokenToken = errors.New("the token has a line break or another character that no token has")

// refusedFinding returns why the API server has refused the credentials: f, unless their dates
// say it. It is asked only then, as the API server's clock may be another.
func (u userFacts) refusedFinding(f finding) finding {
	const renew = "Get a new kubeconfig from where this one came from; with Cluster API, whoever writes the cluster's kubeconfig Secret no longer renews it."
	now := time.Now()
	switch {
	case u.token && !u.expires.IsZero() && !now.Before(u.expires):
		return finding{"the token expired on " + formatMoment(u.expires), renew}
	case u.cert == nil || u.token || u.basic: // the API server may take those
		return f
	case now.After(u.cert.NotAfter):
		return finding{fmt.Sprintf("the client certificate %q expired on %s", nameOf(u.cert), formatMoment(u.cert.NotAfter)), renew}
	case now.Before(u.cert.NotBefore):
		return finding{fmt.Sprintf("the client certificate %q is not valid before %s", nameOf(u.cert), formatMoment(u.cert.NotBefore)), "Set this machine's clock right, or wait until then."}
	}
	return f
}

const pluginAdvice = "Run the plugin's command by hand and mend what it says: it has to be in PATH, logged in, and allowed to reach what it asks."

func (u userFacts) pluginHangs() finding {
	return finding{"the exec plugin " + u.plugin + " does not answer", pluginAdvice}
}

func (u userFacts) pluginFails(err error) finding {
	kind := "auth provider "
	if u.exec {
		kind = "exec plugin "
	}
	return finding{"the " + kind + u.plugin + " gives no credentials: " + err.Error(), pluginAdvice}
}

// nameOf is a certificate's, or that of its authority.
func nameOf(cert *x509.Certificate) string {
	return cmp.Or(cert.Subject.CommonName, cert.Subject.String())
}

func formatDay(t time.Time) string    { return t.UTC().Format(time.DateOnly) }
func formatMoment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
