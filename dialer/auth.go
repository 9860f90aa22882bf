package dialer

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Authenticator makes the Proxy-Authorization value of a CONNECT request.
// It must be safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the value to send, with its scheme. It is called before the
	// first request of a dial, and again for each 407 (at most five). "" before the
	// first request sends no credentials; "" after a 407 makes the dial fail with that
	// 407. The error becomes the cause of an [*Error] of [PhaseAuth].
	Authenticate(ctx context.Context, c *Challenge) (string, error)
}

// Challenge describes the request for which an [Authenticator] is called.
type Challenge struct {
	// Attempt counts the 407 answers so far: zero before the first request.
	Attempt int
	// Header is the header of the last 407, with Proxy-Authenticate. It is nil
	// before the first request.
	Header http.Header
	// Proxy is the proxy as scheme://host:port, without user info.
	Proxy string
	// Target is the host:port that the proxy is asked for.
	Target string
}

// Credentials returns a user name and a password. It is called for every dial, so that
// they can change without a restart. It must be safe for concurrent use. Its error
// becomes the cause of an [*Error] of [PhaseAuth].
type Credentials func(ctx context.Context) (username, password string, err error)

// Password returns Credentials that never change.
func Password(username, password string) Credentials {
	return func(context.Context) (string, string, error) { return username, password, nil }
}

// Basic returns an Authenticator for the Basic scheme (RFC 7617). It sends the
// credentials with the first request. The user name must not have a colon in it, and
// neither may have a control character.
func Basic(c Credentials) Authenticator { return basic(c) }

type basic Credentials

func (b basic) Authenticate(ctx context.Context, c *Challenge) (string, error) {
	if c.Attempt > 0 {
		return "", nil // the proxy has refused them
	}
	username, password, err := b(ctx)
	if err != nil {
		return "", err
	}
	if err := checkBasic(username, password); err != nil {
		return "", err
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(username+":"+password)), nil
}

// AuthFunc is a function as an Authenticator, for schemes that this package does not
// have: Digest, NTLM, Negotiate.
type AuthFunc func(ctx context.Context, c *Challenge) (string, error)

// Authenticate calls f.
func (f AuthFunc) Authenticate(ctx context.Context, c *Challenge) (string, error) { return f(ctx, c) }

// Bearer returns an Authenticator for the Bearer scheme (RFC 6750). It calls token for
// every dial, so that the token can change without a restart, and sends it with the
// first request. token must be safe for concurrent use.
func Bearer(token func(ctx context.Context) (string, error)) Authenticator {
	return AuthFunc(func(ctx context.Context, c *Challenge) (string, error) {
		if c.Attempt > 0 {
			return "", nil // the proxy has refused it
		}
		t, err := token(ctx)
		if err != nil {
			return "", err
		}
		if t == "" || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return "", errors.New("the bearer token is empty or holds a space or a character that no token has")
		}
		return "Bearer " + t, nil
	})
}

func checkBasic(username, password string) error {
	switch {
	case strings.Contains(username, ":"):
		return errors.New("the user name holds a colon, which Basic authentication can't carry")
	case strings.ContainsFunc(username+password, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("the user name or password holds a control character")
	}
	return nil
}

// checkLogin checks what RFC 1929 can carry.
func checkLogin(username, password string) error {
	switch {
	case username == "":
		return errors.New("the user name is empty, which SOCKS5 can't carry")
	case len(username) > 255:
		return fmt.Errorf("the user name has %d bytes, SOCKS5 carries 255", len(username))
	case len(password) > 255:
		return fmt.Errorf("the password has %d bytes, SOCKS5 carries 255", len(password))
	}
	return nil
}
