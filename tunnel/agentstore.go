package tunnel

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Credentials are an agent's: what it shows, and whom it trusts. They are not
// changed once made; a renewal makes new ones.
type Credentials struct {
	// Key is the agent's own. It is kept before the first enrolment, which may
	// then be repeated with the same token.
	Key crypto.Signer
	// Chain is the certificate of Key, leaf first; empty before the enrolment.
	Chain []*x509.Certificate
	// Roots are the authorities that the server's certificate may be of; empty
	// before the enrolment.
	Roots []*x509.Certificate

	given *given // if not nil, the agent does not enrol, and Key is not used
}

// CredentialStore keeps an agent's credentials. One agent uses it, from one
// goroutine at a time.
type CredentialStore interface {
	// Load returns what was saved last; nil and no error if nothing was.
	Load(ctx context.Context) (*Credentials, error)
	// Save replaces what was saved. After an error, or a crash, Load returns
	// either the old or the new credentials, whole.
	Save(ctx context.Context, c *Credentials) error
}

// enrolled reports whether there is a certificate to connect with.
func (c *Credentials) enrolled() bool { return c != nil && len(c.Chain) > 0 }

// identity is the zero Identity before the enrolment.
func (c *Credentials) identity() Identity {
	if !c.enrolled() {
		return Identity{}
	}
	if c.given != nil {
		return c.given.id
	}
	id, err := identityOf(c.Chain[0])
	if err != nil {
		return Identity{}
	}
	return id
}

// expires is when the certificate ends, by the server's clock; the zero time
// before the enrolment.
func (c *Credentials) expires() time.Time {
	if !c.enrolled() {
		return time.Time{}
	}
	return c.Chain[0].NotAfter
}

// renewAt is when two thirds of the certificate's life are over; the zero time
// before the enrolment. The life begins when the server signed, which is not
// when the certificate says; another PKI's begins when it says.
func (c *Credentials) renewAt() time.Time {
	if !c.enrolled() {
		return time.Time{}
	}
	leaf := c.Chain[0]
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	if life > backdate && c.given == nil {
		life -= backdate
	}
	return leaf.NotAfter.Add(-life / 3)
}

// check returns whether the parts fit each other.
func (c *Credentials) check() error {
	if c == nil || c.Key == nil {
		return errors.New("no key")
	}
	if len(c.Chain) == 0 {
		return nil
	}
	if !sameKey(c.Key.Public(), c.Chain[0].PublicKey) {
		return errors.New("the certificate is of another key")
	}
	if len(c.Roots) == 0 {
		return errors.New("no authority to trust")
	}
	_, err := identityOf(c.Chain[0])
	return err
}

// String returns whose credentials they are: no verb of fmt prints the key.
func (c Credentials) String() string {
	if !c.enrolled() {
		return "tunnel.Credentials{not enrolled}"
	}
	return fmt.Sprintf("tunnel.Credentials{%s, until %s}", c.identity(), stamp(c.expires()))
}

// Format writes String, whatever the verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String: JSON and logs hold no key.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// MemoryCredentials is a [CredentialStore] that ends with the process. The
// zero value is empty. It is safe for concurrent use.
type MemoryCredentials struct {
	mu    sync.Mutex // guards the fields below
	saved *Credentials
}

var _ CredentialStore = (*MemoryCredentials)(nil)

// Load implements [CredentialStore].
func (s *MemoryCredentials) Load(context.Context) (*Credentials, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved, nil
}

// Save implements [CredentialStore].
func (s *MemoryCredentials) Save(_ context.Context, c *Credentials) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = c
	return nil
}

// FileStore is a [CredentialStore] in one file, credentials.pem, which is
// replaced as a whole: the key (PKCS #8), the certificates, the authorities.
// Nobody else can read it.
type FileStore struct {
	// Dir is the directory, of this agent alone; it is made if it is missing.
	// Required.
	Dir string
}

var _ CredentialStore = FileStore{}

const (
	credentialsFile = "credentials.pem"
	pemRoot         = "CAUSEWAY AUTHORITY" // not CERTIFICATE: it is no part of the chain
)

// Load implements [CredentialStore]. What cannot be read or does not fit
// together is an [*Error] with CodeConfig.
func (s FileStore) Load(context.Context) (*Credentials, error) {
	if s.Dir == "" {
		return nil, configError("file store: field Dir is required")
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, credentialsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, configError("file store: %w", err)
	}
	c, err := decodeCredentials(text)
	if err != nil {
		return nil, configError("file store: %s in %s: %w", credentialsFile, s.Dir, err)
	}
	return c, nil
}

// Save implements [CredentialStore].
func (s FileStore) Save(_ context.Context, c *Credentials) error {
	if s.Dir == "" {
		return configError("file store: field Dir is required")
	}
	text, err := c.encode()
	if err == nil {
		err = os.MkdirAll(s.Dir, privateDir)
	}
	if err == nil {
		err = replaceFile(s.Dir, credentialsFile, text)
	}
	if err != nil {
		return configError("file store: %w", err)
	}
	return nil
}

func (c *Credentials) encode() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.Key)
	if err != nil {
		return nil, errors.New("the key cannot be written")
	}
	text := bytes.NewBuffer(encodePEM(pemKey, der))
	for _, cert := range c.Chain {
		text.Write(encodePEM(pemCertificate, cert.Raw))
	}
	for _, cert := range c.Roots {
		text.Write(encodePEM(pemRoot, cert.Raw))
	}
	return text.Bytes(), nil
}

func decodeCredentials(text []byte) (*Credentials, error) {
	c := &Credentials{}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return nil, errors.New("the PEM is damaged")
			}
			return c, c.check()
		}
		text = rest
		switch block.Type {
		case pemKey:
			key, err := parseKey(encodePEM(pemKey, block.Bytes))
			if err != nil {
				return nil, err
			}
			c.Key = key
		case pemCertificate, pemRoot:
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			if block.Type == pemRoot {
				c.Roots = append(c.Roots, cert)
			} else {
				c.Chain = append(c.Chain, cert)
			}
		}
	}
}
