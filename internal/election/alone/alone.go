// Package alone copies the kernel into an empty module. The compiler then shows that the kernel stands on nothing else, and a
// program there shows that it elects. Only tests use the package.
package alone

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pgelector/pgelector/"

// Kernel is the kernel and what it stands on.
var Kernel = []string{"db", "internal/backoff", "internal/election", "internal/gate", "internal/idle", "internal/lease", "internal/lockkey", "internal/pgerr", "internal/pin"}

// Copy copies the kernel into a new module, named alone, and returns the module's directory. more are packages and files that
// the module has besides: a file whose name ends in ".go.txt" becomes one of the command. require is the rest of go.mod.
func Copy(t *testing.T, require string, more ...string) (dir string) {
	t.Helper()
	root, dir := rootOf(t), t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module alone\n\ngo 1.26\n\n"+require)
	for _, from := range slices.Concat(Kernel, more) {
		if strings.HasSuffix(from, ".go.txt") {
			copyFile(t, filepath.Join(root, from), filepath.Join(dir, strings.TrimSuffix(filepath.Base(from), ".txt")))
			continue
		}
		entries, err := os.ReadDir(filepath.Join(root, from))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name := e.Name(); isCode(e, name) {
				copyFile(t, filepath.Join(root, from, name), filepath.Join(dir, from, name))
			}
		}
	}
	return dir
}

func isCode(e fs.DirEntry, name string) bool {
	return !e.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

// Build builds the module's command, and returns its path. It downloads nothing.
func Build(t *testing.T, dir string) (program string) {
	t.Helper()
	program = filepath.Join(dir, "alone")
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", program, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the kernel does not compile alone: %v\n%s", err, out)
	}
	return program
}

// Run runs the command.
func Run(t *testing.T, program string, arguments ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Fatalf("the kernel does not elect alone: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// rootOf is the directory of the root module.
func rootOf(t *testing.T) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("where is this file?")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, strings.ReplaceAll(string(text), `"`+module, `"alone/`))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
