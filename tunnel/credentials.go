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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/smallfile"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Credentials are an agent's key and certificate, and the authorities that it
// trusts. They are not changed once made; a renewal makes new ones.
type Credentials struct {
	// Key is the agent's own. It is saved before the first enrolment, which can then
	// be repeated with the same token.
	Key crypto.Signer
	// Chain is the certificate of Key, leaf first; empty before the enrolment.
	Chain []*x509.Certificate
	// Roots are the authorities that the server's certificate may be of; empty
	// before the enrolment.
	Roots []*x509.Certificate
	// Servers are the addresses of the last invitation that named some. They are used if
	// neither the Agent nor an invitation names any. May be empty.
	Servers []string
}

// isEnrolled reports whether there is a certificate to connect with.
func (c *Credentials) isEnrolled() bool { return c != nil && len(c.Chain) > 0 }

// identity is the zero Identity before the enrolment.
func (c *Credentials) identity() (id Identity) {
	if c.isEnrolled() {
		id, _ = identityOf(c.Chain[0]) // check has seen it
	}
	return id
}

// expires is when the certificate ends, by the server's clock; the zero time
// before the enrolment.
func (c *Credentials) expires() time.Time {
	if !c.isEnrolled() {
		return time.Time{}
	}
	return c.Chain[0].NotAfter
}

// renewAt is when two thirds of the certificate's life are over; the zero time
// before the enrolment. A certificate is backdated, so its life begins later than it says.
func (c *Credentials) renewAt() time.Time {
	if !c.isEnrolled() {
		return time.Time{}
	}
	leaf := c.Chain[0]
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	if life > backdate {
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
	if !c.isEnrolled() {
		return "tunnel.Credentials{not enrolled}"
	}
	return fmt.Sprintf("tunnel.Credentials{%s, until %s}", c.identity(), formatTime(c.expires()))
}

// Format writes String, whatever the verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String: JSON and logs hold no key.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// acceptRenewal returns the credentials that the answer to a RENEW makes with the
// key. Their identity has to be that of c, which is not changed.
func (c *Credentials) acceptRenewal(answer *wire.Message, key crypto.Signer) (*Credentials, error) {
	id := c.identity()
	next, err := parseIssued(answer, "renew", id.Cluster, key, c.Roots)
	if err != nil {
		return nil, err
	}
	next.Servers = c.Servers
	if next.identity() != id {
		return nil, &Error{Op: "renew", Cluster: id.Cluster, Code: CodeBadCertificate, Err: errors.New("the server gave another identity")}
	}
	return next, nil
}

// withAuthorities returns the credentials with the authorities in the message; c itself
// if they are the same. c is not changed.
func (c *Credentials) withAuthorities(m *wire.Message) (*Credentials, error) {
	roots, err := parseAuthorities(m, c.Roots)
	if err != nil {
		return nil, &Error{Op: "connect", Cluster: c.identity().Cluster, Code: CodeBadRequest, Err: err}
	}
	if slices.EqualFunc(roots, c.Roots, (*x509.Certificate).Equal) {
		return c, nil
	}
	next := *c
	next.Roots = roots
	return &next, nil
}

// parseIssued reads an ISSUED, and checks that it has a certificate of key, for an
// agent, signed by one of the authorities that it names. Certificates in known are
// not parsed again.
func parseIssued(m *wire.Message, op, cluster string, key crypto.Signer, known []*x509.Certificate) (*Credentials, error) {
	if err := messageError(m, op, cluster, ""); err != nil {
		return nil, err
	}
	chain, err1 := parseCertificateFields(m, wire.TagCertificate, nil)
	roots, err2 := parseAuthorities(m, known)
	c := &Credentials{Key: key, Chain: chain, Roots: roots}
	err := errors.Join(err1, err2)
	if err == nil && len(chain) == 0 {
		err = errors.New("the server sent no certificate")
	}
	if err == nil {
		err = c.check()
	}
	if err == nil {
		// The server's clock decides when it is valid.
		err = verifyLeaf(chain[0], roots, withinLife(chain[0], time.Now()), x509.ExtKeyUsageClientAuth)
	}
	if err != nil {
		return nil, &Error{Op: op, Cluster: cluster, Code: CodeBadCertificate, Err: err}
	}
	return c, nil
}

// parseAuthorities returns the authorities that the message tells the agent to trust.
func parseAuthorities(m *wire.Message, known []*x509.Certificate) ([]*x509.Certificate, error) {
	roots, err := parseCertificateFields(m, wire.TagRoot, known)
	if err == nil && len(roots) == 0 {
		err = errors.New("the server names no authority to trust")
	}
	if slices.ContainsFunc(roots, func(c *x509.Certificate) bool { return !c.IsCA }) {
		err = errors.New("the server names an authority that is none")
	}
	return roots, err
}

// maxCertificates bounds what an agent takes from one message.
const maxCertificates = 32

// parseCertificateFields parses the fields with the tag. A certificate that is in
// known is returned from there: parsed it takes 3 KiB, and while there is a
// connection, crypto/tls holds the authority's anyway.
func parseCertificateFields(m *wire.Message, t wire.Tag, known []*x509.Certificate) ([]*x509.Certificate, error) {
	all := slices.Collect(m.All(t))
	if len(all) > maxCertificates {
		return nil, errors.New("too many certificates")
	}
	var certs []*x509.Certificate
	for _, der := range all {
		if i := slices.IndexFunc(known, func(c *x509.Certificate) bool { return bytes.Equal(c.Raw, der) }); i >= 0 {
			certs = append(certs, known[i])
			continue
		}
		cert, err := x509.ParseCertificate(bytes.Clone(der)) // not to keep the message
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// CredentialStore keeps an agent's credentials. One agent uses it, from one
// goroutine at a time.
//
// Agents with a Replica may share what it keeps, such as a Secret. Each then has a
// CredentialStore of its own, whose Save replaces only what this one has loaded or saved
// last. If there is anything else, another agent was faster: Save leaves it and returns
// [ErrCredentialsChanged]. The agent then loads that, and goes on with it. So all have the
// key of the first one, for which the server takes the same token again, and of several
// renewals one is kept. The older certificate is good until it ends. A FileStore can't be
// shared.
type CredentialStore interface {
	// Load returns what was saved last; nil and no error if nothing was.
	Load(ctx context.Context) (*Credentials, error)
	// Save replaces what was saved. After an error, or a crash, Load returns
	// either the old or the new credentials, whole.
	Save(ctx context.Context, c *Credentials) error
}

// ErrCredentialsChanged is the error of a Save that would replace credentials that another
// agent has saved.
var ErrCredentialsChanged = errors.New("tunnel: another agent has saved its credentials")

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

// FileStore is a [CredentialStore] in one file, credentials.pem, with the key
// (PKCS #8), the certificates, the authorities and the servers' addresses. The file is replaced as a whole,
// and only its owner can read it.
type FileStore struct {
	// Dir is the directory, which no other agent may use. It is made if it is
	// missing. Required.
	Dir string
}

var _ CredentialStore = FileStore{}

const (
	credentialsFile = "credentials.pem"
	pemRoot         = "CAUSEWAY AUTHORITY" // not CERTIFICATE: it is no part of the chain
	pemServers      = "CAUSEWAY SERVERS"   // an address a line
)

// Load implements [CredentialStore]. If the file cannot be read, or its parts do not
// fit together, the error is an [*Error] with CodeConfig.
func (s FileStore) Load(context.Context) (*Credentials, error) {
	if s.Dir == "" {
		return nil, configError("file store: field Dir is required")
	}
	text, err := smallfile.Read(filepath.Join(s.Dir, credentialsFile), maxMebibytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, configError("file store: %w", err)
	}
	c, err := parseCredentials(text)
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
	text, err := c.encodePEM()
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

// PEM returns the text that [ParseCredentials] reads, for a [CredentialStore]. It
// holds the key. The error is an [*Error] with CodeConfig: the parts do not fit
// together, or the key cannot be written.
func (c *Credentials) PEM() ([]byte, error) {
	text, err := c.encodePEM()
	if err != nil {
		return nil, configError("credentials: %w", err)
	}
	return text, nil
}

// ParseCredentials reads what [Credentials.PEM] returned. The error is an [*Error] with
// CodeConfig, and does not quote the key.
func ParseCredentials(text []byte) (*Credentials, error) {
	c, err := parseCredentials(text)
	if err != nil {
		return nil, configError("credentials: %w", err)
	}
	return c, nil
}

func (c *Credentials) encodePEM() ([]byte, error) {
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
	if len(c.Servers) > 0 {
		text.Write(encodePEM(pemServers, []byte(strings.Join(c.Servers, "\n"))))
	}
	return text.Bytes(), nil
}

func parseCredentials(text []byte) (*Credentials, error) {
	c := &Credentials{}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return nil, errors.New("the PEM is damaged")
			}
			if err := c.check(); err != nil {
				return nil, err
			}
			return c, nil
		}
		text = rest
		switch block.Type {
		case pemKey:
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, errors.New("the key cannot be read") // the cause may quote it
			}
			c.Key, _ = key.(crypto.Signer)
		case pemServers:
			c.Servers = strings.Split(string(block.Bytes), "\n")
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

const (
	privateDir  fs.FileMode = 0o700
	tempPrefix              = ".new-"
	tempForgets             = time.Hour // age at which a temporary file is removed
)

// replaceFile gives the file new contents. A crash at any point leaves the old
// or the new contents, whole. Only the owner can read the file.
func replaceFile(dir, name string, data []byte) error {
	return putFile(dir, name, data, os.Rename)
}

// createFile is like replaceFile, for a file that must not exist yet. If several
// callers create it at the same time, one succeeds and the others get fs.ErrExist.
// The file system must support hard links.
func createFile(dir, name string, data []byte) error {
	return putFile(dir, name, data, os.Link)
}

func putFile(dir, name string, data []byte, put func(from, to string) error) (err error) {
	sweepTemp(dir)
	f, err := os.CreateTemp(dir, tempPrefix+"*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		// After a rename the file is gone.
		if rm := os.Remove(f.Name()); err == nil && rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = rm
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := put(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a new name durable, on systems that can sync a directory.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}

// sweepTemp removes the temporary files that crashes left, as far as it can.
func sweepTemp(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), tempPrefix) {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > tempForgets {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}
