//go:build unix

// Package release_test releases the modules in a scratch repository, and gets them from a local
// proxy, as a stranger would.
package release_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/must"
)

var check = must.Check

const (
	path    = "github.com/pgelector/pgelector"
	version = "v0.999.0" // of the rehearsal
)

// modules are those that are released.
var modules = []string{"", "/hooks/otel", "/hooks/prometheus", "/migrations/golangmigrate", "/migrations/goose", "/cmd/pgelector"}

var root, _ = filepath.Abs("../..")

// released are the modules after a rehearsed release.
var released struct {
	dir   string // the scratch repository
	env   []string
	cache string // the machine's modules
}

func TestMain(m *testing.M) {
	temp, err := os.MkdirTemp("", "release")
	if err != nil {
		panic(err)
	}
	if err := rehearse(temp); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(temp)
	if err := goleak.Find(); err != nil && code == 0 {
		panic(err)
	}
	os.Exit(code)
}

// rehearse commits the working tree to a scratch repository and releases it there. It makes a module
// proxy of the tags, a folder, and an environment that asks it first, into an empty module cache.
func rehearse(temp string) error {
	repository := filepath.Join(temp, "repository")
	released.dir = repository
	settings, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return err
	}
	cache, proxy, _ := strings.Cut(strings.TrimSpace(string(settings)), "\n")
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "GO") || strings.HasPrefix(entry, "GOCACHE=") || strings.HasPrefix(entry, "GOROOT=") {
			released.env = append(released.env, entry)
		}
	}
	released.cache = cache
	cached := "file://" + filepath.Join(cache, "cache", "download") + "," + proxy
	// -trimpath, so that the packages of a cache are compiled once, wherever it is.
	released.env = append(released.env, "GOFLAGS=-modcacherw -trimpath", "GOWORK=off", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1")
	released.env = slices.Clip(released.env) // each append copies it
	tags := append(released.env, "GOPROXY="+cached, "GOPRIVATE="+path, "GOMODCACHE="+filepath.Join(temp, "tags"),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+repository+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+path)
	download := "go mod download"
	for _, module := range modules {
		download += " " + path + module + "@" + version
	}
	for _, line := range []struct {
		dir, command string
		env          []string
	}{
		{root, "mkdir '" + repository + "' && git ls-files -z --cached --others --exclude-standard | while read -rd '' file; do [ ! -e \"$file\" ] || printf '%s\\0' \"$file\"; done" +
			" | xargs -0 cp --parents -t '" + repository + "'", released.env},
		{repository, "git init -q -b main && git config user.name rehearsal && git config user.email rehearsal@localhost && git add -A && git commit -q -m rehearsal", released.env},
		{repository, "scripts/release.sh " + version, append(released.env, "GOPROXY="+cached, "GOMODCACHE="+cache)},
		{temp, download, tags}, // the download cache of a module cache has the layout of a proxy
	} {
		if err := run(line.dir, line.env, line.command); err != nil {
			return err
		}
	}
	released.env = append(released.env, "GOPROXY=file://"+filepath.Join(temp, "tags", "cache", "download")+","+cached,
		"GOSUMDB=off", "GOMODCACHE="+filepath.Join(temp, "fresh"))
	return nil
}

func run(dir string, env []string, command string) error {
	cmd := exec.Command("bash", "-euc", command)
	cmd.Dir, cmd.Env = dir, env
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, said)
	}
	return nil
}

func output(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("bash", "-euc", command)
	cmd.Dir, cmd.Env = dir, released.env
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, said)
	}
	return string(said)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	return string(text)
}

// With the workspace, all modules get the newest versions that one of them requires.
func TestEachModuleCompilesWithItsLowestVersions(t *testing.T) {
	for _, module := range modules[1:] {
		check(t, run(released.dir+module, released.env, "go vet ./..."))
	}
	for _, adapter := range []string{"/hooks/otel", "/hooks/prometheus", "/migrations/golangmigrate", "/migrations/goose"} {
		check(t, run(released.dir+adapter, released.env, "go test -count=1 ./..."))
	}
}

// A release tidies each module, and adds the checksums of those before it.
func TestOnlyVersionsAndChecksumsOfTheModulesDifferAfterARelease(t *testing.T) {
	own := regexp.MustCompile(`(?m)(` + path + `\S*) v\S+`)
	for _, module := range modules {
		if got, want := own.ReplaceAllString(read(t, released.dir+module+"/go.mod"), "$1"), own.ReplaceAllString(read(t, root+module+"/go.mod"), "$1"); got != want {
			t.Errorf("run go mod tidy in .%s, as scripts/release.sh does: its go.mod is\n%s\nwant\n%s", module, want, got)
		}
		sums := regexp.MustCompile(`(?m)^` + path + `\S* .*\n`)
		if got, want := sums.ReplaceAllString(read(t, released.dir+module+"/go.sum"), ""), sums.ReplaceAllString(read(t, root+module+"/go.sum"), ""); got != want {
			t.Errorf("the go.sum of .%s is not tidy: it is\n%s\nwant\n%s", module, want, got)
		}
	}
}

func TestAStrangerGetsEachModuleAndInstallsTheCommand(t *testing.T) {
	dir := t.TempDir()
	check(t, run(dir, released.env, "go mod init example.com/stranger"))
	program := "package main\n\nimport (\n"
	for _, module := range modules[:5] {
		check(t, run(dir, released.env, "go get "+path+module+"@"+version))
	}
	for _, imported := range []string{"elector", "hooks/otel", "hooks/prometheus", "migrations/golangmigrate", "migrations/goose"} {
		program += "\t_ \"" + path + "/" + imported + "\"\n"
	}
	check(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program+")\n\nfunc main() {}\n"), 0o644))
	check(t, run(dir, released.env, "go mod tidy && go build ./..."))
	said := output(t, dir, "GOBIN=$PWD/bin go install "+path+"/cmd/pgelector@"+version+" && bin/pgelector version")
	if !strings.Contains(said, version) {
		t.Errorf("pgelector version says %q", said)
	}
}

// Whoever downloads the command can check what it is, and what is in it.
func TestTheFilesOfTheCommandHaveChecksumsAndListItsModules(t *testing.T) {
	platform := runtime.GOOS + "_" + runtime.GOARCH
	dist := released.dir + "/dist"
	check(t, run(released.dir, append(released.env, "GOMODCACHE="+released.cache), "scripts/dist.sh "+version+" "+strings.Replace(platform, "_", "/", 1)))
	name := "pgelector_" + version + "_" + platform
	sums := read(t, dist+"/SHA256SUMS")
	for _, file := range []string{name + ".tar.gz", name + ".sbom.json"} {
		if !strings.Contains(sums, "  "+file+"\n") {
			t.Errorf("no checksum of %s in\n%s", file, sums)
		}
	}
	said := output(t, dist, "sha256sum --quiet -c SHA256SUMS && tar -xzf "+name+".tar.gz && "+name+"/pgelector version && go version -m "+name+"/pgelector")
	if !strings.Contains(said, version) {
		t.Errorf("pgelector version says %q", said)
	}
	linked := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t`).FindAllStringSubmatch(said, -1)
	sbom := read(t, dist+"/"+name+".sbom.json")
	for _, module := range linked {
		if !strings.Contains(sbom, `"name": "`+module[1]+`"`) {
			t.Errorf("the SBOM lacks %s", module[1])
		}
	}
	if len(linked) < 5 || strings.Contains(sbom, "devel") {
		t.Errorf("%d modules are linked; the SBOM:\n%s", len(linked), sbom)
	}
}

// An auditor reads what a program can link.
func TestAUserOfElectorAndPgxHasFewModules(t *testing.T) {
	const most, lines = 26, 32
	dir := t.TempDir()
	check(t, run(dir, released.env, "go mod init example.com/user"))
	check(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(`package main

import (
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "`+path+`/elector"
)

func main() {}
`), 0o644))
	check(t, run(dir, released.env, "go get "+path+"@"+version+" && go mod tidy"))
	all := strings.Fields(output(t, dir, "go list -m -f '{{.Path}}' all"))
	if len(all) > most {
		t.Errorf("go list -m all names %d modules, want at most %d: %q", len(all), most, all)
	}
	sums := read(t, filepath.Join(dir, "go.sum"))
	if others := strings.Count(sums, "\n") - strings.Count(sums, path+" "); others > lines {
		t.Errorf("go.sum has %d lines of other modules, want at most %d", others, lines)
	}
	for _, heavy := range []string{"spf13/cobra", "prometheus/client_golang", "go.opentelemetry.io/otel"} {
		if strings.Contains(strings.Join(all, " "), heavy) {
			t.Errorf("the user of elector has %s", heavy)
		}
	}
}
