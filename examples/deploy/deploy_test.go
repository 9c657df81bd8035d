// Package deploy checks the files of this folder. The tests of e2e/firsthour run their commands.
package deploy

import (
	"os"
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
