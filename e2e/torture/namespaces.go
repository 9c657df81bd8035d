//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// insideVariable marks the program that runs in namespaces of its own.
const insideVariable = "PGELECTOR_TORTURE_INSIDE"

// inNamespaces calls fn in a copy of this program that has network and mount
// namespaces of its own, or else here, with the reason.
func inNamespaces(fn func(without error) int) int {
	if os.Getenv(insideVariable) != "" {
		os.Unsetenv(insideVariable)
		return fn(command("ip", "link", "set", "lo", "up"))
	}
	if os.Geteuid() != 0 {
		return fn(errors.New("an ordinary user may not make network and mount namespaces"))
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fn(fmt.Errorf("iproute2 is not installed: %w", err))
	}
	program, err := os.Executable()
	if err != nil {
		return fn(err)
	}
	inside := exec.Command(program, os.Args[1:]...)
	inside.Env = append(os.Environ(), insideVariable+"=1")
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	inside.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8) // a Ctrl-C is the other's, too, who cleans up
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := inside.Start(); err != nil {
		signal.Stop(signals)
		return fn(fmt.Errorf("namespaces are not allowed here: %w", err))
	}
	go func() {
		for s := range signals {
			_ = inside.Process.Signal(s)
		}
	}()
	_ = inside.Wait()
	return max(inside.ProcessState.ExitCode(), -inside.ProcessState.ExitCode())
}

// command runs a program that says nothing if all went well.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return nil
}
