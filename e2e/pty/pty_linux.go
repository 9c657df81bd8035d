// Package pty runs a program on a new terminal, for tests and recordings.
package pty

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts the command as the leader of a session on a new terminal of that size. It
// returns the master side: writes to it are typed input, and reads from it return the output,
// until all programs on the terminal have ended.
func Start(cmd *exec.Cmd, columns, rows int) (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("pty: %w", err)
	}
	slave, err := open(master, columns, rows)
	if err != nil {
		master.Close()
		return nil, fmt.Errorf("pty: %w", err)
	}
	defer slave.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		master.Close()
		return nil, fmt.Errorf("pty: %w", err)
	}
	return master, nil
}

// open unlocks and opens the slave side of the terminal.
func open(master *os.File, columns, rows int) (slave *os.File, err error) {
	raw, err := master.SyscallConn()
	if err != nil {
		return nil, err
	}
	var number int
	control := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err != nil {
			return
		}
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
	})
	if control != nil {
		return nil, control
	}
	if err != nil {
		return nil, err
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
}
