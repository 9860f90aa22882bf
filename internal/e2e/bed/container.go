package bed

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
)

// A Container is a program that sees only the files of its image, which it
// can't write to, and what is mounted there. Neither it nor what it starts
// becomes root.
type Container struct {
	Root      string // directory of the image
	Argv, Env []string
	User      int64
	Group     int64
	Mounts    []Mount
	Stdin     io.Reader // nil is empty
}

// A Mount is a directory or a file of the image that is another one.
type Mount struct {
	From, To string
	ReadOnly bool
}

// The mounts are those of a namespace that `ip netns exec` makes, and end with
// the program.
const containerScript = `set -e
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
	mount --bind "$1" "$root$2"
	[ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
	shift 3
done
shift
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid -- chroot --userspec="$user" --groups="${user#*:}" "$root" "$@"`

// StartContainer starts a container in the namespace; it is killed when ctx or
// the bed ends.
func (n *Namespace) StartContainer(ctx context.Context, c Container) (*Running, error) {
	user := strconv.FormatInt(c.User, 10) + ":" + strconv.FormatInt(c.Group, 10)
	argv := []string{"/bin/sh", "-c", containerScript, "container", c.Root, user}
	for _, m := range c.Mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		argv = append(argv, m.From, filepath.Clean("/"+m.To), mode)
	}
	if c.User == 0 || len(c.Argv) == 0 {
		return nil, fmt.Errorf("bed: container: user %d, command %q", c.User, c.Argv)
	}
	return n.Start(ctx, Command{Argv: append(append(argv, "--"), c.Argv...), Env: c.Env, Stdin: c.Stdin})
}
