package bed

import (
	"context"
	"fmt"
	"io"
	"strconv"
)

// A Container is a program that sees only the files of its image, which it
// can't write to. Neither it nor what it starts becomes root.
type Container struct {
	Root      string // directory of the image
	Argv, Env []string
	User      int64
	Group     int64
	Stdin     io.Reader // nil is empty
}

// The mount is in a namespace that `ip netns exec` makes, and ends with the
// program.
const containerScript = `set -e
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid -- chroot --userspec="$user" --groups="${user#*:}" "$root" "$@"`

// StartContainer starts a container in the namespace; it is killed when ctx or
// the bed ends.
func (n *Namespace) StartContainer(ctx context.Context, c Container) (*Running, error) {
	user := strconv.FormatInt(c.User, 10) + ":" + strconv.FormatInt(c.Group, 10)
	argv := []string{"/bin/sh", "-c", containerScript, "container", c.Root, user}
	if c.User == 0 || len(c.Argv) == 0 {
		return nil, fmt.Errorf("bed: container: user %d, command %q", c.User, c.Argv)
	}
	return n.Start(ctx, Command{Argv: append(argv, c.Argv...), Env: c.Env, Stdin: c.Stdin})
}
