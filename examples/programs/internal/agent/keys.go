package agent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
)

// keysFile is an authorized_keys file. The server sets what is between the marks; the
// rest stays.
type keysFile string

const (
	keysPayload = "authorized_keys"
	beginMark   = "# BEGIN tunnel-agent: what is between these lines is replaced\n"
	endMark     = "# END tunnel-agent\n"
)

// takePayload is the Agent's Payload.
func (path keysFile) takePayload(_ context.Context, p tunnel.Payload) error {
	if p.Name != keysPayload {
		return fmt.Errorf("no payload but %s is taken", keysPayload)
	}
	keys, err := checkKeys(string(p.Data))
	if err != nil {
		return err
	}
	old, err := os.ReadFile(string(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.New("the file of keys cannot be read") // its path is not the server's business
	}
	next, err := replaceKeys(old, keys)
	if err != nil || bytes.Equal(old, next) {
		return err
	}
	if err := replaceFile(string(path), next); err != nil {
		return errors.New("the file of keys cannot be written")
	}
	return nil
}

// replaceKeys returns the file with keys between the marks.
func replaceKeys(old []byte, keys string) ([]byte, error) {
	block := beginMark + keys + endMark
	before, rest, found := bytes.Cut(old, []byte(beginMark))
	if !found {
		if len(old) > 0 && old[len(old)-1] != '\n' {
			old = append(slices.Clip(old), '\n')
		}
		return append(slices.Clip(old), block...), nil
	}
	_, after, found := bytes.Cut(rest, []byte(endMark))
	if !found {
		return nil, errors.New("the mark at the end is missing in the file of keys")
	}
	return slices.Concat(before, []byte(block), after), nil
}

// keyTypes are the keys of sshd(8) that are not obsolete.
var keyTypes = []string{
	"ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
	"sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
}

// checkKeys accepts only lines of "type base64 comment": no options, and no line that
// ends the block.
func checkKeys(text string) (string, error) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return "", errors.New("a line of the keys has a character that does not print")
		}
		kind, rest, _ := strings.Cut(line, " ")
		data, _, _ := strings.Cut(rest, " ")
		if !slices.Contains(keyTypes, kind) || !isKey(kind, data) {
			return "", errors.New("a line is not an SSH public key without options")
		}
		b.WriteString(line + "\n")
	}
	return b.String(), nil
}

// isKey reports whether data is a key of the kind (RFC 4253, 6.6).
func isKey(kind, data string) bool {
	blob, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(blob) < 4 {
		return false
	}
	n := binary.BigEndian.Uint32(blob)
	return uint64(n) < uint64(len(blob)-4) && string(blob[4:4+n]) == kind
}

// replaceFile replaces a file at once. It keeps the file's mode and owner: sshd ignores a
// file that others may write.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".authorized_keys-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if info, statErr := os.Stat(path); statErr == nil {
		err = errors.Join(f.Chmod(info.Mode().Perm()), cli.KeepOwner(f, info))
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
