package agent

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

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
