package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// mountUser is the part of a shell script that makes ProxyUser a user of the
// system, with the files that writeUser left in $1. `ip netns exec` gives each
// program a private copy of the mounts, so the machine's own files stay as they
// are.
const mountUser = `mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/shadow" /etc/shadow
`

const proxyUID, proxyGID = 65533, 65534

// writeUser writes copies of the system's files that have ProxyUser too: no
// other's id, no home, and a password that never expires.
func writeUser(ctx context.Context, dir string) error {
	hash, err := hashPassword(ctx, ProxyPassword)
	if err != nil {
		return err
	}
	if err := copyWith(dir, "/etc/passwd", 0o644, fmt.Sprintf("%s:x:%d:%d::/nonexistent:/bin/sh", ProxyUser, proxyUID, proxyGID)); err != nil {
		return err
	}
	return copyWith(dir, "/etc/shadow", 0o600, ProxyUser+":"+hash+":1:0:99999:7:::")
}

// copyWith copies a system file to a folder, with one more line.
func copyWith(dir, path string, mode os.FileMode, line string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("bed: user: %w", err)
	}
	b = append(b, line+"\n"...)
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, mode); err != nil {
		return fmt.Errorf("bed: user: %w", err)
	}
	return nil
}

// hashPassword returns the password in the form that /etc/shadow has. Perl is
// on every Debian system, and calls the function that the servers check with.
func hashPassword(ctx context.Context, password string) (string, error) {
	return runOutput(ctx, password, "perl", "-e", `print crypt(<STDIN>, '$6$causeway$')`)
}
