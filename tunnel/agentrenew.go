package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// renewal is one that is under way.
type renewal struct {
	session *serverSession
	done    chan error
}

// startRenewal asks for the next certificate on the link, apart: the answer
// may take long, and a session may end meanwhile.
func (r *runner) startRenewal(ctx context.Context, l *serverSession) {
	n := &renewal{l, make(chan error, 1)}
	r.renewing = n
	go func() { n.done <- r.renew(ctx, l) }()
}

// endRenewal takes the outcome. Each session is then stale, and the next ones
// are where they are.
func (r *runner) endRenewal(ctx context.Context, err error) {
	l := r.renewing.session
	r.renewing = nil
	if ctx.Err() != nil {
		return // the end of Run is no failure
	}
	if err != nil {
		wait := renewalRetry(r.held())
		first := r.renewNotBefore.IsZero()
		r.renewNotBefore = time.Now().Add(wait)
		if !first || !errors.Is(err, errSameCertificate) {
			r.reportFailure(l.server, err, wait)
		}
		return
	}
	r.renewed, r.renewNotBefore = time.Now(), time.Time{}
	r.serverIndex = max(r.serverIndex-len(r.live), 0)
}

// nextRenewal returns the link to renew on, and in what time; nil if there is
// none with the certificate of now, or a renewal is under way.
func (r *runner) nextRenewal() (*serverSession, time.Duration) {
	if r.renewing != nil {
		return nil, 0
	}
	for _, l := range r.live {
		if !r.stale(l) {
			return l, max(r.renewIn(), time.Until(r.renewNotBefore))
		}
	}
	return nil, 0
}

// renewIn is the time until the next renewal. However wrong the clock is, it is
// not sooner after the last one than it would be on time: the server has work
// with it, unlike with GetClientCertificate.
func (r *runner) renewIn() time.Duration {
	c := r.held()
	in := time.Until(c.renewAt())
	if !r.renewed.IsZero() && c.external == nil {
		in = max(in, time.Until(r.renewed.Add(c.expires().Sub(c.renewAt()))))
	}
	return in
}

// renewalRetry is a tenth of what is left of the certificate, or 5 seconds if that
// is longer; in the last 10 seconds it is half of what is left.
func renewalRetry(c *Credentials) time.Duration {
	left := time.Until(c.expires())
	return min(max(left/10, min(left/2, 5*time.Second), 500*time.Millisecond), time.Hour)
}

// renew gets the next certificate: on the link's control stream, unless there
// is GetClientCertificate.
func (r *runner) renew(ctx context.Context, l *serverSession) error {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	if held := r.held(); held.external != nil {
		return r.rotateCertificate(ctx, held)
	}
	key, m, err := newRequest(l.carrier.State())
	if err != nil {
		return &Error{Op: "renew", Code: CodeInternal, Err: err}
	}
	select {
	case <-l.issued: // an answer to an earlier request that came too late
	default:
	}
	l.Send(m)
	for {
		select {
		case answer := <-l.issued:
			if answer.Text(wire.TagID) != m.Text(wire.TagID) {
				continue
			}
			next, err := r.update(ctx, func(held *Credentials) (*Credentials, error) { return held.acceptRenewal(answer, key) })
			if err == nil {
				callHook2(r.Hooks.Renewed, next.identity(), next.expires())
			}
			return err
		case <-l.Mux.Done():
			return &Error{Op: "renew", Code: CodeLost, Err: l.Mux.Err()}
		case <-ctx.Done():
			return &Error{Op: "renew", Code: contextCode(ctx.Err()), Err: ctx.Err()}
		}
	}
}

// prepareGiven takes the certificate of now, and returns the servers to try.
func (r *runner) prepareGiven(ctx context.Context) ([]string, error) {
	inv, err := r.Invitation(ctx)
	if err != nil {
		return nil, &Error{Op: "connect", Code: CodeNoIdentity, Err: err}
	}
	if err := checkPin(inv.Pin); err != nil {
		return nil, configError("invitation: field Pin: %w", err)
	}
	if _, err := r.takeCertificate(ctx, inv.Pin); err != nil {
		return nil, err
	}
	return r.serversOr(inv)
}

// rotateCertificate takes the next certificate, if there is one yet.
func (r *runner) rotateCertificate(ctx context.Context, held *Credentials) error {
	next, err := r.takeCertificate(ctx, held.external.pin)
	if err == nil && next.Chain[0] == held.Chain[0] {
		err = &Error{Op: "renew", Cluster: held.identity().Cluster, Code: CodeInternal,
			Err: fmt.Errorf("%w that ends at %s", errSameCertificate, formatTime(held.expires()))}
	}
	return err
}

var errSameCertificate = errors.New("GetClientCertificate still returns the certificate")

// takeCertificate has the credentials be those of GetClientCertificate.
func (r *runner) takeCertificate(ctx context.Context, pin string) (*Credentials, error) {
	renewed := false
	next, err := r.update(ctx, func(held *Credentials) (*Credentials, error) {
		cert, err := r.GetClientCertificate(anyServer())
		if err == nil {
			cert, err = withLeaf(cert)
		}
		if err != nil {
			return nil, &Error{Op: "connect", Code: CodeNoIdentity, Err: fmt.Errorf("GetClientCertificate: %w", err)}
		}
		next := held.withCertificate(cert, pin)
		renewed = held != nil && next.Chain[0] != held.Chain[0]
		return next, nil
	})
	if renewed {
		callHook2(r.Hooks.Renewed, next.identity(), next.expires())
	}
	return next, err
}

// anyServer is what any server asks for. GetClientCertificate is called when
// none does, too.
func anyServer() *tls.CertificateRequestInfo {
	return &tls.CertificateRequestInfo{Version: tls.VersionTLS13, SignatureSchemes: []tls.SignatureScheme{
		tls.ECDSAWithP256AndSHA256, tls.Ed25519, tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512,
		tls.ECDSAWithP384AndSHA384, tls.ECDSAWithP521AndSHA512,
	}}
}
