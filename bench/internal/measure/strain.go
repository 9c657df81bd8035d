package measure

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/bench/internal/servers"
)

// limitCPU limits a process to a tenth of a core, by a control group of its own.
func limitCPU(pid int) (release func(), err error) {
	const v1, v2 = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"
	dir, file, quota := filepath.Join(v1, fmt.Sprintf("bench-%d", pid)), "cpu.cfs_quota_us", "10000"
	if _, err := os.Stat(v1); err != nil {
		dir, file, quota = filepath.Join(v2, fmt.Sprintf("bench-%d", pid)), "cpu.max", "10000 100000"
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("limit the CPU of a process: %w", err)
	}
	release = func() { _ = os.Remove(dir) } // once the process has ended
	for _, write := range [][2]string{{file, quota}, {"cgroup.procs", strconv.Itoa(pid)}} {
		if err := os.WriteFile(filepath.Join(dir, write[0]), []byte(write[1]), 0o644); err != nil {
			release()
			return nil, fmt.Errorf("limit the CPU of a process: %w", err)
		}
	}
	return release, nil
}

// A disk is a file system in a file, with servers of its own on it.
type disk struct {
	image, dir string
	servers    *servers.Servers
}

func newDisk(ctx context.Context) (d *disk, err error) {
	d = &disk{}
	if d.dir, err = os.MkdirTemp("", "bench-disk-"); err != nil {
		return nil, err
	}
	d.image = d.dir + ".image"
	defer func() {
		if err != nil {
			d.remove()
		}
	}()
	for _, command := range [][]string{
		{"truncate", "-s", "2G", d.image}, {"mkfs.ext4", "-q", d.image}, {"mount", "-o", "loop", d.image, d.dir}, {"chmod", "1777", d.dir},
	} {
		if err = execute(ctx, command...); err != nil {
			return nil, err
		}
	}
	before, was := os.LookupEnv("TMPDIR")
	if err = os.Setenv("TMPDIR", d.dir); err != nil {
		return nil, err
	}
	d.servers, err = servers.Start(ctx, connections)
	_ = os.Unsetenv("TMPDIR")
	if was {
		_ = os.Setenv("TMPDIR", before)
	}
	return d, err
}

// stall has the disk answer nothing for a while.
func (d *disk) stall(ctx context.Context, while time.Duration) error {
	if err := execute(ctx, "fsfreeze", "-f", d.dir); err != nil {
		return err
	}
	slept := sleep(ctx, while)
	if err := execute(context.WithoutCancel(ctx), "fsfreeze", "-u", d.dir); err != nil {
		return err
	}
	return slept
}

// remove stops the servers, and removes the file system.
func (d *disk) remove() {
	if d.servers != nil {
		d.servers.Stop()
	}
	_ = execute(context.Background(), "umount", d.dir)
	_ = os.Remove(d.dir)
	_ = os.Remove(d.image)
}

func execute(ctx context.Context, command ...string) error {
	if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", command, err, out)
	}
	return nil
}
