//go:build unix

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the user that servers run as and that owns their files. A nil owner is the current user.
type owner struct {
	uid, gid uint32
}

// processOwner returns nil for an ordinary user, and for root, as whom PostgreSQL and pgbouncer refuse
// to run, an unprivileged user.
func processOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("sandbox: user %s: %w", name, err)
		}
		return &owner{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("sandbox: PostgreSQL refuses to run as root, and there is no user postgres or nobody " +
		"to run it as; run as an ordinary user, or create the user postgres")
}

func (o *owner) chown(path string) error {
	if o == nil {
		return nil
	}
	if err := os.Lchown(path, int(o.uid), int(o.gid)); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// canEnter returns an error if the owner is another user than we are and may not be able to enter dir.
func (o *owner) canEnter(dir string) error {
	if o == nil {
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("sandbox: servers started by root run as user id %d, which cannot enter %s; "+
				"set TMPDIR to a directory that every user can enter, such as /tmp", o.uid, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (o *owner) credential() *syscall.Credential {
	if o == nil {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}
