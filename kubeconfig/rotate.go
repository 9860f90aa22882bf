package kubeconfig

import (
	"crypto/x509"
	"time"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Reason is why a kubeconfig has to be rotated.
type Reason string

// The reasons of [NeedsRotation].
const (
	// ReasonCertificateLife: less than half of the client certificate's life
	// is left, or it is not valid yet, or not with its key. A life of more than
	// a year counts as one, as Cluster API has it (4380 hours): certificates
	// often say that they began when their CA did.
	ReasonCertificateLife Reason = "CertificateLife"
	// ReasonCAExpires stands for CertificateLife where a new certificate would
	// not last longer, since the CA ends. [Rotate] can't help: renew the CA.
	ReasonCAExpires Reason = "CAExpires"
	// ReasonCAChanged: the certificates of Spec.CA, as a set, are not those of
	// the kubeconfig; or, with Credentials.CAKey, none of them has issued the
	// client certificate.
	ReasonCAChanged Reason = "CAChanged"
	// ReasonCredentialsChanged: Spec.Credentials gives credentials (Certificate
	// with Key, Token, AuthInfo), and the kubeconfig has others.
	ReasonCredentialsChanged Reason = "CredentialsChanged"
	// ReasonEndpointChanged: server, or the endpoints behind it.
	ReasonEndpointChanged Reason = "EndpointChanged"
	// ReasonRouteChanged: proxy-url, tls-server-name, or the rest of the
	// extension.
	ReasonRouteChanged Reason = "RouteChanged"
)

// NeedsRotation says why the kubeconfig existing is not what s wants it to be;
// none if it is. As in [Merge], what is zero in s wants nothing. It makes no
// keys and opens no files: a client certificate in a file is not looked at.
//
// The time is time.Now. An error is one that [Rotate] would return.
func NeedsRotation(existing []byte, s Spec) ([]Reason, error) {
	_, reasons, _, err := planRotation(existing, s)
	return reasons, err
}

// Rotate returns existing with s in it, as [Merge] does, and the reasons; where
// nothing is to be written, existing itself.
//
// A new client certificate is made only where one was before, only if its life
// or its issuer is the reason, and only with Credentials.CAKey. So a user with a
// token, or with a file, keeps it; Merge is what replaces one way to
// authenticate by another. A reason that nothing can be done about, such as
// CertificateLife without CAKey, is returned along with existing itself.
func Rotate(existing []byte, s Spec) ([]byte, []Reason, error) {
	m, reasons, renew, err := planRotation(existing, s)
	if err != nil {
		return nil, nil, err
	}
	if renew {
		if _, err := m.setUser(true); err != nil {
			return nil, nil, err
		}
	}
	text, err := m.text()
	return text, reasons, err
}

// planRotation leaves only the renewal of the certificate to be done.
func planRotation(existing []byte, s Spec) (m *merge, reasons []Reason, renew bool, err error) {
	if m, err = newMerge(existing); err != nil {
		return nil, nil, false, err
	}
	if err = m.check(s); err != nil {
		return nil, nil, false, err
	}
	changed, err := m.setCluster()
	if err != nil {
		return nil, nil, false, err
	}
	life, issuer, err := m.certificateReasons()
	if err != nil {
		return nil, nil, false, err
	}
	credentials := false
	if len(s.Credentials.CAKey) == 0 {
		if credentials, err = m.setUser(false); err != nil {
			return nil, nil, false, err
		}
	}
	for _, r := range []struct {
		reason Reason
		holds  bool
	}{
		{life, life != ""},
		{ReasonCAChanged, changed.ca || issuer},
		{ReasonCredentialsChanged, credentials},
		{ReasonEndpointChanged, changed.endpoint},
		{ReasonRouteChanged, changed.route},
	} {
		if r.holds {
			reasons = append(reasons, r.reason)
		}
	}
	renew = len(s.Credentials.CAKey) > 0 && (life == ReasonCertificateLife || issuer)
	return m, reasons, renew, nil
}

// certificateReasons returns what is to be said of the client certificate's
// life, and whether another CA has issued it.
func (m *merge) certificateReasons() (life Reason, otherIssuer bool, err error) {
	if m.user == nil || len(m.user.ClientCertificateData) == 0 {
		return "", false, nil
	}
	chain := certificateOf(m.user)
	if chain == nil {
		return ReasonCertificateLife, false, nil
	}
	if spent(chain[0], m.now) {
		life = ReasonCertificateLife
	}
	if len(m.spec.Credentials.CAKey) == 0 {
		return life, false, nil
	}
	ca, err := m.effectiveCA()
	if err != nil {
		return "", false, err
	}
	issuer, _, err := m.spec.Credentials.issuer(ca, m.now)
	if err != nil {
		return "", false, err
	}
	otherIssuer = !issuedBy(chain, ca, m.now)
	valid := field.CheckValidity(chain[0], m.now) == nil
	if life != "" && valid && !otherIssuer && !endOf(issuer, m.now).After(chain[0].NotAfter) {
		life = ReasonCAExpires
	}
	return life, otherIssuer, nil
}

// spent reports whether less than half of a certificate's life is left.
func spent(cert *x509.Certificate, now time.Time) bool {
	life := min(cert.NotAfter.Sub(cert.NotBefore), adminLife)
	return field.CheckValidity(cert, now) != nil || cert.NotAfter.Sub(now) < life/2
}
