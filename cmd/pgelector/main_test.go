package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestVersionSaysWhatItWasBuiltFrom(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.25.0", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc123"}, {Key: "vcs.modified", Value: "true"}}}
	if got, want := describe(info), "pgelector v1.2.3 (go1.25.0, revision abc123, modified)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	info.Settings = nil
	if got, want := describe(info), "pgelector v1.2.3 (go1.25.0)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// build makes the program, in a directory whose name shows in the arguments of
// every process that the program starts.
func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "pgelector")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

func TestVersionRuns(t *testing.T) {
	out, err := exec.Command(build(t), "version").CombinedOutput()
	if err != nil || len(out) == 0 {
		t.Errorf("got %q, error %v", out, err)
	}
}

func TestAnUnknownCommandIsAnError(t *testing.T) {
	cmd := exec.Command(build(t), "no-such-command")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("error %v, exit code %d, want 1", err, cmd.ProcessState.ExitCode())
	}
}
