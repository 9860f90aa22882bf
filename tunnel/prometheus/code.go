package prometheus

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	codeOK    = "ok"    // there was no error
	codeOther = "other" // an error, or a code, without a word of its own
)

// codes are the values of a label code, beside codeOK and codeOther.
var codes = map[tunnel.Code]string{
	tunnel.CodeInternal:           "internal",
	tunnel.CodeDenied:             "denied",
	tunnel.CodeRefused:            "refused",
	tunnel.CodeNotFound:           "not_found",
	tunnel.CodeTimeout:            "timeout",
	tunnel.CodeUnreachable:        "unreachable",
	tunnel.CodeTooManyStreams:     "too_many_streams",
	tunnel.CodeDraining:           "draining",
	tunnel.CodeBadRequest:         "bad_request",
	tunnel.CodeReset:              "reset",
	tunnel.CodeVersion:            "version",
	tunnel.CodeCertificateExpired: "certificate_expired",
	tunnel.CodeRevoked:            "revoked",
	tunnel.CodeBadCertificate:     "bad_certificate",
	tunnel.CodeTokenUnknown:       "token_unknown",
	tunnel.CodeTokenExpired:       "token_expired",
	tunnel.CodeTokenUsed:          "token_used",
	tunnel.CodeWrongCluster:       "wrong_cluster",
	tunnel.CodeBadProof:           "bad_proof",
	tunnel.CodeHeld:               "held",
	tunnel.CodeNoAgent:            "no_agent",
	tunnel.CodeForbidden:          "forbidden",
	tunnel.CodeLost:               "lost",
	tunnel.CodeClosed:             "closed",
	tunnel.CodePin:                "pin",
	tunnel.CodeConfig:             "config",
	tunnel.CodeCanceled:           "canceled",
	tunnel.CodeNoIdentity:         "no_identity",
	tunnel.CodeServerCertificate:  "server_certificate",
}

// codeOf returns the label of an error: the word for its tunnel.Code, or for an error of
// the standard library.
func codeOf(err error) string {
	var e *tunnel.Error
	switch {
	case err == nil:
		return codeOK
	case errors.As(err, &e):
		if name, ok := codes[e.Code]; ok {
			return name
		}
		return codeOther
	case errors.Is(err, context.Canceled):
		return codes[tunnel.CodeCanceled]
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return codes[tunnel.CodeTimeout]
	case errors.Is(err, net.ErrClosed):
		return codes[tunnel.CodeClosed]
	}
	return codeOther
}

// endOf is codeOf for the end of a session: an error without a code is the loss of the
// carrier.
func endOf(err error) string {
	if name := codeOf(err); name != codeOther {
		return name
	}
	return codes[tunnel.CodeLost]
}

// opOf returns the operation that failed, one of the few that the tunnel has.
func opOf(err error) string {
	var e *tunnel.Error
	if errors.As(err, &e) {
		switch e.Op {
		case "dial", "connect", "enroll", "renew", "push", "serve", "config":
			return e.Op
		}
	}
	return "other"
}
