package agent

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
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

// maxKeysFile is what the agent reads of the file: it may be another user's.
const maxKeysFile = 16 << 20

var (
	errReadKeys  = errors.New("the file of keys cannot be read")
	errWriteKeys = errors.New("the file of keys cannot be written")
	errKeysLink  = errors.New("the file of keys, or its folder, is another user's link to what is not that user's")
	errKeysBusy  = errors.New("somebody else is writing the file of keys: try again")
)

// edit replaces the file by what change makes of it. If somebody else writes it meanwhile,
// it begins anew.
func (path keysFile) edit(change func(old []byte) ([]byte, error)) error {
	folder, err := os.OpenRoot(filepath.Dir(string(path)))
	if err != nil {
		return errWriteKeys
	}
	defer folder.Close()
	link, linkErr := os.Lstat(filepath.Dir(string(path)))
	opened, err := folder.Stat(".")
	if err != nil || linkErr != nil {
		return errWriteKeys
	}
	if !mayFollow(link, opened) {
		return errKeysLink
	}
	for range 3 {
		if err = path.editOnce(folder, change); !errors.Is(err, errKeysBusy) {
			break
		}
	}
	return err
}

func (path keysFile) editOnce(folder *os.Root, change func(old []byte) ([]byte, error)) error {
	name := filepath.Base(string(path))
	entry, err := folder.Lstat(name)
	var old []byte
	var info fs.FileInfo // nil without a file
	switch {
	case err == nil:
		if old, info, err = path.read(entry); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return errReadKeys
	}
	next, err := change(old)
	if err != nil || info != nil && bytes.Equal(old, next) {
		return err
	}
	unchanged := func() bool {
		now, err := folder.Lstat(name)
		if entry == nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		return err == nil && os.SameFile(entry, now) && entry.ModTime().Equal(now.ModTime()) && entry.Size() == now.Size()
	}
	return replaceFile(folder, name, next, info, unchanged)
}

// read returns the content of the file that entry is, or is a link to.
func (path keysFile) read(entry fs.FileInfo) ([]byte, fs.FileInfo, error) {
	// A named pipe does not hold up the agent.
	f, err := os.OpenFile(string(path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, errReadKeys
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxKeysFile {
		return nil, nil, errReadKeys
	}
	if !mayFollow(entry, info) {
		return nil, nil, errKeysLink
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeysFile+1))
	if err != nil || len(data) > maxKeysFile {
		return nil, nil, errReadKeys
	}
	return data, info, nil
}

// mayFollow reports whether what was opened is what entry names. A link leads to it only if
// it is root's or our own, or if both have one owner: an agent of root's is led by another
// user to nothing that this user does not have.
func mayFollow(entry, opened fs.FileInfo) bool {
	if entry.Mode().Type() != fs.ModeSymlink {
		return os.SameFile(entry, opened)
	}
	owner, known := cli.Owner(entry)
	to, _ := cli.Owner(opened)
	return !known || owner == 0 || owner == os.Geteuid() || owner == to
}

// replaceFile replaces a file at once, if it is unchanged. It keeps the mode and the owner of
// the file that info is about: sshd ignores a file that others may write.
func replaceFile(folder *os.Root, name string, data []byte, info fs.FileInfo, unchanged func() bool) error {
	fresh := ".authorized_keys-" + rand.Text()
	f, err := folder.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errWriteKeys
	}
	defer func() { _ = folder.Remove(fresh) }()
	if info != nil {
		err = errors.Join(f.Chmod(info.Mode().Perm()), cli.KeepOwner(f, info))
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errWriteKeys
	}
	if !unchanged() {
		return errKeysBusy
	}
	if folder.Rename(fresh, name) != nil {
		return errWriteKeys
	}
	return nil
}
