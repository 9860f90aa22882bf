package agent

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/tunnel"
)

// keysFile is an authorized_keys file. The server sets what is between the marks; the
// rest stays.
type keysFile string

const (
	keysPayload = "authorized_keys"
	beginMark   = "# BEGIN tunnel-agent: what is between these lines is replaced\n"
	endMark     = "# END tunnel-agent\n"

	// maxKeyLine is what sshd reads of a line in all its versions.
	maxKeyLine = 8 << 10
)

// takePayload is the Agent's Payload. No error has a path: that is not the server's business.
func (path keysFile) takePayload(p tunnel.Payload) error {
	if path == "" {
		return errors.New("the agent takes no payloads: it runs without --authorized-keys")
	}
	if p.Name != keysPayload {
		return fmt.Errorf("no payload but %s is taken", keysPayload)
	}
	keys, err := encodeKeys(string(p.Data))
	if err != nil {
		return err
	}
	return path.edit(func(old []byte) ([]byte, error) { return replaceKeys(old, keys) })
}

// replaceKeys returns the file with keys between the marks, which are whole lines. The keys
// of a second block go.
func replaceKeys(old []byte, keys string) ([]byte, error) {
	var next, after []byte // after the last mark at the end
	blocks, isOpen := 0, false
	for line := range bytes.Lines(old) {
		switch mark := string(bytes.TrimRight(line, " \t\r\n")) + "\n"; {
		case mark == beginMark && isOpen:
			return nil, errNoEnd
		case mark == beginMark:
			next, after = append(next, after...), nil
			if blocks == 0 {
				next = append(next, beginMark+keys+endMark...)
			}
			blocks, isOpen = blocks+1, true
		case mark == endMark && isOpen:
			isOpen = false
		case mark == endMark && blocks > 0 && hasOnlyKeys(after):
			// A comment once had this mark, and an agent took it for the end.
			after = nil
		case !isOpen:
			after = append(after, line...)
		}
	}
	if isOpen {
		return nil, errNoEnd
	}
	next = append(next, after...)
	if blocks > 0 {
		return next, nil
	}
	if len(next) > 0 && next[len(next)-1] != '\n' {
		next = append(next, '\n')
	}
	return append(next, beginMark+keys+endMark...), nil
}

var errNoEnd = errors.New("the mark at the end is missing in the file of keys")

// hasOnlyKeys reports whether each line is one that encodeKeys writes.
func hasOnlyKeys(text []byte) bool {
	for line := range bytes.Lines(text) {
		if _, err := encodeKey(string(bytes.TrimRight(line, "\n"))); err != nil {
			return false
		}
	}
	return true
}

// keyTypes are the keys of sshd(8) that are not obsolete.
var keyTypes = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoRSA, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
}

// encodeKeys accepts only lines of "type base64 comment", without options, and returns them
// as sshd reads them.
func encodeKeys(text string) (string, error) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.Trim(line, " \t\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		encoded, err := encodeKey(line)
		if err != nil {
			return "", err
		}
		b.WriteString(encoded + "\n")
	}
	return b.String(), nil
}

func encodeKey(line string) (string, error) {
	kind, rest, _ := strings.Cut(line, " ")
	data, comment, _ := strings.Cut(rest, " ")
	blob, err := base64.StdEncoding.DecodeString(data)
	if err != nil || !slices.Contains(keyTypes, kind) {
		return "", errNoKey
	}
	key, err := ssh.ParsePublicKey(blob)
	if err != nil || key.Type() != kind {
		return "", errNoKey
	}
	encoded := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	if comment != "" {
		encoded += " " + comment
	}
	if err := quote.Check(comment); err != nil {
		return "", fmt.Errorf("the comment of a key %w", err)
	}
	if len(encoded) > maxKeyLine {
		return "", fmt.Errorf("a line of the keys has more than %d bytes", maxKeyLine)
	}
	return encoded, nil
}

var errNoKey = errors.New("a line is not an SSH public key without options")
