package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/causewayproject/causeway/tunnel"
)

// credentialsKey is the Secret's entry with the credentials, as the file of a
// tunnel.FileStore has them.
const credentialsKey = "credentials.pem"

// maxConflicts is how often a write is tried while others write to the Secret, too.
const maxConflicts = 5

// secretStore keeps the agent's credentials in a Secret of the pod's namespace, which
// must exist: it takes the rights to get and to update that one. One agent uses it,
// from one goroutine at a time.
//
// The pods of a Deployment share the Secret, each with a secretStore of its own. It does
// not replace credentials that another pod has written meanwhile: those are the newer
// ones, and the Secret is all that a next pod has.
type secretStore struct {
	api  *podClient
	name string

	known []string // what may be in the Secret: read or written by this process
}

var _ tunnel.CredentialStore = (*secretStore)(nil)

// secretObject is a Secret with all its fields: what is not the agent's is sent back
// as it came.
type secretObject map[string]json.RawMessage

// Load implements [tunnel.CredentialStore].
func (s *secretStore) Load(ctx context.Context) (*tunnel.Credentials, error) {
	_, data, err := s.read(ctx)
	if err != nil {
		return nil, s.wrap(err)
	}
	text := data[credentialsKey]
	var c *tunnel.Credentials
	if len(text) > 0 {
		if c, err = tunnel.ParseCredentials(text); err != nil {
			return nil, s.wrap(fmt.Errorf("entry %s: %w; remove the entry, and put a new invitation in place", credentialsKey, err))
		}
	}
	s.known = []string{string(text)}
	return c, nil
}

// Save implements [tunnel.CredentialStore].
func (s *secretStore) Save(ctx context.Context, c *tunnel.Credentials) error {
	text, err := c.PEM()
	if err != nil {
		return err
	}
	for range maxConflicts {
		if err = s.replace(ctx, text); !isStatus(err, http.StatusConflict) {
			break
		}
	}
	return s.wrap(err)
}

// replace is one attempt: the API server refuses it if the Secret has changed since
// it was read.
func (s *secretStore) replace(ctx context.Context, text []byte) error {
	object, data, err := s.read(ctx)
	if err != nil {
		return err
	}
	// An empty Secret was lost, and made again.
	before := string(data[credentialsKey])
	if before != "" && !slices.Contains(s.known, before) {
		return tunnel.ErrCredentialsChanged
	}
	data[credentialsKey] = text
	if object["data"], err = json.Marshal(data); err != nil {
		return err
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	// If the answer is lost, either may be there.
	s.known = []string{before, string(text)}
	_, err = s.api.request(ctx, http.MethodPut, s.name, body)
	return err
}

func (s *secretStore) read(ctx context.Context) (secretObject, map[string][]byte, error) {
	answer, err := s.api.request(ctx, http.MethodGet, s.name, nil)
	if err != nil {
		return nil, nil, err
	}
	object, data := secretObject{"data": []byte("null")}, map[string][]byte{}
	if json.Unmarshal(answer, &object) != nil || json.Unmarshal(object["data"], &data) != nil {
		return nil, nil, errors.New("the answer of the API server is not a Secret")
	}
	if data == nil {
		data = map[string][]byte{}
	}
	return object, data, nil
}

// wrap names the Secret, and says what to do about what will not pass by itself.
func (s *secretStore) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case isStatus(err, http.StatusNotFound):
		err = fmt.Errorf("%w: apply the agent's manifest, which has an empty one", err)
	case isStatus(err, http.StatusForbidden):
		err = fmt.Errorf("%w: a Role must allow get and update of this Secret", err)
	}
	return fmt.Errorf("the Secret %s: %w", s.name, err)
}

func isStatus(err error, code int) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.code == code
}
