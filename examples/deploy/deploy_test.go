//go:build linux

// Package deploy checks the files of this folder. The tests of e2e/firsthour run their commands.
package deploy

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
)

func parse[T any](t *testing.T, file string) (parsed T) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return parsed
}

type compose struct {
	Services map[string]struct {
		Build  struct{ Context, Dockerfile string }
		Deploy struct{ Replicas int }
	}
}

type deployment struct {
	Kind string
	Spec struct{ Replicas int }
}

func TestThreeReplicasRun(t *testing.T) {
	replica := parse[compose](t, "compose.yaml").Services["replica"]
	if replica.Deploy.Replicas != 3 {
		t.Errorf("compose.yaml starts %d", replica.Deploy.Replicas)
	}
	if _, err := os.Stat(filepath.Join(replica.Build.Context, replica.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	if d := parse[deployment](t, "kubernetes.yaml"); d.Kind != "Deployment" || d.Spec.Replicas != 3 {
		t.Errorf("kubernetes.yaml is %+v", d)
	}
}

// The image is built as its file says, but by the Go that runs the test, and then run.
func TestTheImageRunsAsAnotherUserThanRoot(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	build, image, _ := strings.Cut(string(text), "\nFROM scratch\n")
	line := regexp.MustCompile(`(?m)^RUN (.* -o) /pgelector (.*)$`).FindStringSubmatch(build)
	user := regexp.MustCompile(`(?m)^USER ([1-9]\d*):([1-9]\d*)$`).FindStringSubmatch(image)
	if line == nil || user == nil {
		t.Fatalf("it builds by %q, for the user %q: want numbers that are not 0, which Kubernetes can check", line, user)
	}
	root := t.TempDir()
	cmd := exec.Command("sh", "-c", line[1]+" "+filepath.Join(root, "pgelector")+" "+line[2])
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "VERSION=v1.2.3")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line[0], err, out)
	}
	program, err := elf.Open(filepath.Join(root, "pgelector"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if out, err := exec.Command(filepath.Join(root, "pgelector"), "version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "pgelector v1.2.3 (") || !strings.Contains(build, "\nARG VERSION\n") {
		t.Errorf("%v, its version: %s", err, out)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a dynamic linker, which the image has not")
		}
	}
	if !strings.Contains(image, "COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/\n") {
		t.Error("the image has no certificates")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can run it in a root of its own")
	}
	for dir := root; dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	uid, _ := strconv.ParseUint(user[1], 10, 32)
	gid, _ := strconv.ParseUint(user[2], 10, 32)
	run := exec.Command("/pgelector", "key", "orders")
	run.Dir, run.Env = "/", []string{}
	run.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "pg_") {
		t.Errorf("%v\n%s", err, out)
	}
}
