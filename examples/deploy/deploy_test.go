// Package deploy checks the files of this folder.
package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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
		Image   string
		Build   struct{ Context, Dockerfile string }
		Command []string
		Deploy  struct{ Replicas int }
	}
}

type deployment struct {
	Kind string
	Spec struct {
		Replicas int
		Template struct {
			Spec struct {
				Containers []struct{ Args []string }
			}
		}
	}
}

// The command parses its flags before it shows its help.
func TestTheCommandTakesTheArgumentsOfTheFiles(t *testing.T) {
	services := parse[compose](t, "compose.yaml").Services
	inPod := parse[deployment](t, "kubernetes.yaml").Spec.Template.Spec.Containers
	if len(inPod) != 1 {
		t.Fatalf("the pod has %d containers", len(inPod))
	}
	program := filepath.Join(t.TempDir(), "pgelector")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/pgelector").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, args := range [][]string{services["replica"].Command, services["dashboard"].Command, inPod[0].Args} {
		if len(args) == 0 {
			t.Fatal("a file starts nothing")
		}
		help := append([]string{args[0], "--help"}, args[1:]...)
		if out, err := exec.Command(program, help...).CombinedOutput(); err != nil || !strings.Contains(string(out), "pgelector "+args[0]) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	if exec.Command(program, "lead", "--help", "--no-such-flag").Run() == nil {
		t.Error("a flag that does not exist is no error")
	}
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

func TestTheImagesUserIsNotRoot(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	from := strings.LastIndex(string(text), "\nFROM ")
	users := regexp.MustCompile(`(?m)^USER (.*)$`).FindAllStringSubmatch(string(text)[from:], -1)
	if len(users) == 0 || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(users[len(users)-1][1]) {
		t.Errorf("the last stage has the users %q, want a number that is not 0, which Kubernetes can check", users)
	}
}
