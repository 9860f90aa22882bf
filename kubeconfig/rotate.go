package kubeconfig

import (
	"crypto/x509"
	"time"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// RotationTrigger is why a kubeconfig has to be rotated.
type RotationTrigger string

// The triggers of [NeedsRotation].
const (
	// TriggerCertificateLife: less than half of the client certificate's life
	// is left, or it is not valid yet, or not with its key. A life of more than
	// a year counts as one, as Cluster API has it (4380 hours): certificates
	// often say that they began when their CA did.
	TriggerCertificateLife RotationTrigger = "CertificateLife"
	// TriggerCAExpires stands for CertificateLife where a new certificate would
	// not last longer, since the CA ends. [Rotate] can't help: renew the CA.
	TriggerCAExpires RotationTrigger = "CAExpires"
	// TriggerCAChanged: the certificates of Spec.CA, as a set, are not those of
	// the kubeconfig; or, with Credentials.CAKey, none of them has issued the
	// client certificate.
	TriggerCAChanged RotationTrigger = "CAChanged"
	// TriggerCredentialsChanged: Spec.Credentials gives credentials (Certificate
	// with Key, Token, AuthInfo), and the kubeconfig has others.
	TriggerCredentialsChanged RotationTrigger = "CredentialsChanged"
	// TriggerEndpointChanged: server, or the endpoints behind it.
	TriggerEndpointChanged RotationTrigger = "EndpointChanged"
	// TriggerRouteChanged: proxy-url, tls-server-name, or the rest of the
	// extension.
	TriggerRouteChanged RotationTrigger = "RouteChanged"
)

// NeedsRotation says why the kubeconfig existing is not what s wants it to be;
// none if it is. As in [Merge], what is zero in s wants nothing. It makes no
// keys and opens no files: a client certificate in a file is not looked at.
//
// The time is time.Now. An error is one that [Rotate] would return.
func NeedsRotation(existing []byte, s Spec) ([]RotationTrigger, error) {
	_, triggers, _, err := planRotation(existing, s)
	return triggers, err
}

// Rotate returns existing with s in it, as [Merge] does, and the triggers; where
// nothing is to be written, existing itself.
//
// A new client certificate is made only where one was before, only if its life
// or its issuer is the reason, and only with Credentials.CAKey. So a user with a
// token, or with a file, keeps it; Merge is what replaces one way to
// authenticate by another. A trigger that nothing can be done about, such as
// CertificateLife without CAKey, is returned along with existing itself.
func Rotate(existing []byte, s Spec) ([]byte, []RotationTrigger, error) {
	m, triggers, renew, err := planRotation(existing, s)
	if err != nil {
		return nil, nil, err
	}
	if renew {
		if _, err := m.setUser(true); err != nil {
			return nil, nil, err
		}
	}
	text, err := m.text()
	return text, triggers, err
}

// planRotation leaves only the renewal of the certificate to be done.
func planRotation(existing []byte, s Spec) (m *merge, triggers []RotationTrigger, renew bool, err error) {
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
	life, issuer, err := m.certificateTriggers()
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
		trigger RotationTrigger
		holds   bool
	}{
		{life, life != ""},
		{TriggerCAChanged, changed.ca || issuer},
		{TriggerCredentialsChanged, credentials},
		{TriggerEndpointChanged, changed.endpoint},
		{TriggerRouteChanged, changed.route},
	} {
		if r.holds {
			triggers = append(triggers, r.trigger)
		}
	}
	renew = len(s.Credentials.CAKey) > 0 && (life == TriggerCertificateLife || issuer)
	return m, triggers, renew, nil
}

// certificateTriggers returns what is to be said of the client certificate's
// life, and whether another CA has issued it.
func (m *merge) certificateTriggers() (life RotationTrigger, otherIssuer bool, err error) {
	if m.user == nil || len(m.user.ClientCertificateData) == 0 {
		return "", false, nil
	}
	chain := certificateOf(m.user)
	if chain == nil {
		return TriggerCertificateLife, false, nil
	}
	if isPastHalfLife(chain[0], m.now) {
		life = TriggerCertificateLife
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
		life = TriggerCAExpires
	}
	return life, otherIssuer, nil
}

// isPastHalfLife reports whether less than half of a certificate's life is left.
func isPastHalfLife(cert *x509.Certificate, now time.Time) bool {
	life := min(cert.NotAfter.Sub(cert.NotBefore), adminLife)
	return field.CheckValidity(cert, now) != nil || cert.NotAfter.Sub(now) < life/2
}
