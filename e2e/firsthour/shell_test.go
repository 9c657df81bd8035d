//go:build unix

package firsthour_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pgelector/pgelector/e2e/docscheck"
	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

// host is a shell with the installed command and a worker, and a server at which the role app may connect.
type host struct {
	module
	address string
	setup   string // runs before each line
}

func newHost(t *testing.T) *host {
	t.Helper()
	database(t)
	_, err := connection(t, shared.Get(t).DSN()).Exec(t.Context(), "CREATE ROLE app LOGIN")
	check(t, err)
	t.Cleanup(func() {
		_, err := connection(t, shared.Get(t).DSN()).Exec(context.Background(), "DROP ROLE app")
		check(t, err)
	})
	h := &host{module: newModule(t), address: shared.Get(t).Addr()}
	for _, worker := range []string{"billing-worker", "bin/billing-worker", "bin/nightly-report"} {
		h.write(t, worker, "#!/bin/sh\ntrap 'echo stopping; exit 0' TERM\necho working\n[ \"${0##*/}\" != nightly-report ] || exit 0\nwhile :; do sleep 0.05; done\n")
	}
	name, port, _ := strings.Cut(h.address, ":")
	h.write(t, "services", "[app]\nhost="+name+"\nport="+port+"\nuser=app\ndbname=app\n")
	h.setup = "PATH=" + h.path("bin") + ":$PATH; export PGSERVICEFILE=" + h.path("services") + " DATABASE_URL=postgres://app@" + h.address + "/app\n"
	h.run(t, "bash", "-c", h.install(command(t, "docs/command.md", "go install")))
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

// install makes a line install the command of this repository.
func (h *host) install(line string) string {
	line = strings.NewReplacer("github.com/pgelector/pgelector/", "./", "@latest", "").Replace(line)
	return "cd '" + root + "'; unset GOWORK; GOBIN='" + h.path("bin") + "' " + line
}

// start starts a line. It is exec'ed, so that signals reach the command.
func (h *host) start(t *testing.T, line string) *process {
	t.Helper()
	return h.module.start(t, h.setup+"exec "+line)
}

// succeeds repeats a line until it succeeds and says all of the words.
func (h *host) succeeds(t *testing.T, line string, words ...string) {
	t.Helper()
	eventually(t, line, func() bool {
		cmd := exec.Command("bash", "-c", h.setup+line)
		cmd.Dir, cmd.Env = h.dir, environment
		said, err := cmd.CombinedOutput()
		for _, word := range words {
			if !strings.Contains(string(said), word) {
				return false
			}
		}
		return err == nil
	})
}

// candidates are the leader web-1 and its deputy web-2.
func (h *host) candidates(t *testing.T, election string) {
	t.Helper()
	run := "pgelector run " + election + " --candidate "
	h.start(t, run+"web-1 -- sleep 1000").says(t, " elected")
	h.start(t, run+"web-2 -- sleep 1000").says(t, " became deputy")
}

// notRun returns what skips a line, and says why.
func notRun(why string) func(*testing.T, *host, string, []string) {
	return func(t *testing.T, _ *host, line string, _ []string) { t.Skipf("not run: %s: %s", why, line) }
}

type play struct {
	pattern string
	run     func(t *testing.T, h *host, line string, words []string)
}

// on says how a line of the documents' shell blocks is run: by the first pattern that it matches.
var on = []play{
	{`^docker run `, notRun("it needs a Docker daemon; the tests start a server")},
	{`^make demo `, notRun("package demo has its tests")},
	{`^pgelector run migrations --once `, notRun("TestTheCommandRunsAMigrationOnceOnEachOfManyHosts runs it")},
	{`^make test `, notRun("it runs this test")},
	{`^git clone `, notRun("no release is published: the tests have the repository")},
	{`^go mod edit -require=`, func(t *testing.T, h *host, line string, _ []string) {
		h.run(t, "bash", "-c", strings.Replace(line, "=../pgelector", "="+root, 1))
	}},
	{`^go mod tidy`, func(t *testing.T, h *host, line string, _ []string) { h.run(t, "bash", "-c", line) }},
	{`^go mod init `, func(t *testing.T, h *host, line string, _ []string) {
		h.run(t, "bash", "-c", "cd $(mktemp -d -p .) && "+line)
	}},
	{`^go get `, func(t *testing.T, h *host, line string, _ []string) { h.run(t, "bash", "-c", line) }},
	{`^go install `, func(t *testing.T, h *host, line string, _ []string) { h.run(t, "bash", "-c", h.install(line)) }},
	{`^export DATABASE_URL=`, func(t *testing.T, h *host, line string, _ []string) {
		h.setup += strings.NewReplacer("localhost:5432", h.address, "db.example.com", h.address).Replace(line)
	}},
	{`^pgelector doctor`, func(t *testing.T, h *host, line string, _ []string) {
		h.start(t, strings.Replace(line, "user@host", "app@"+h.address, 1)).ends(t, 0)
	}},
	{`^pgelector run \w+ -- `, func(t *testing.T, h *host, line string, _ []string) {
		one := h.start(t, line)
		one.says(t, "^working")
		two := h.start(t, line)
		two.says(t, "became deputy")
		check(t, syscall.Kill(one.cmd.Process.Pid, syscall.SIGTERM))
		one.ends(t, 0)
		two.says(t, "^working")
	}},
	{`^pgelector status (\w+)`, func(t *testing.T, h *host, line string, words []string) {
		h.candidates(t, words[1])
		h.succeeds(t, line, "web-1", "web-2")
	}},
	{`^pgelector resign (\w+)`, func(t *testing.T, h *host, line string, words []string) {
		h.candidates(t, words[1])
		p := h.start(t, line)
		p.says(t, "web-2")
		p.ends(t, 0)
	}},
	{`^pgelector status (--group \w+ --shards \d+)`, func(t *testing.T, h *host, line string, words []string) {
		h.start(t, "pgelector run "+words[1]+" --candidate web-1 -- sleep 1000")
		h.succeeds(t, line, "web-1")
	}},
}

func TestEveryShellLineOfTheDocsIsRun(t *testing.T) {
	h := newHost(t)
	setup := h.setup
	played := map[int]bool{}
	for _, page := range pages(t) {
		h.setup = setup
		for _, b := range blocks(t, page, "sh") {
			for line := range strings.Lines(b.Code) {
				var words []string
				i := slices.IndexFunc(on, func(one play) bool {
					words = regexp.MustCompile(one.pattern).FindStringSubmatch(line)
					return words != nil
				})
				if i < 0 {
					t.Errorf("%s: nothing runs the line %q", page, line)
					continue
				}
				played[i] = true
				t.Run(page+": "+strings.Join(strings.Fields(line)[:2], " "), func(t *testing.T) { on[i].run(t, h, line, words) })
			}
		}
	}
	for i, one := range on {
		if !played[i] {
			t.Errorf("no line of the documents is like %s", one.pattern)
		}
	}
}

// What is not run: the images of the files, which need a Docker daemon, and the objects of
// Kubernetes, which need its API server. Their commands and probes are.
func TestTheRecipesOfTheCommandRun(t *testing.T) {
	h := newHost(t)
	all, err := docscheck.Blocks(read(t, "docs/command.md"))
	check(t, err)
	for _, b := range all {
		code := strings.ReplaceAll(b.Code, "/usr/local/bin/", h.path("bin")+"/")
		switch b.Language {
		case "sh": // see above
		case "crontab":
			t.Run("cron", func(t *testing.T) { cron(t, h, code) })
		case "ini":
			t.Run("systemd", func(t *testing.T) { unit(t, h, code) })
		case "yaml":
			t.Run("sidecar", func(t *testing.T) { containers(t, h, code) })
		default:
			t.Errorf("nothing runs the block of %q at line %d", b.Language, b.Line)
		}
	}
	h.setup += "DATABASE_URL=" + shared.Get(t).DSN() + "\n" // the example's role may create the roster
	for _, file := range []string{"compose.yaml", "kubernetes.yaml"} {
		t.Run(file, func(t *testing.T) { containers(t, h, read(t, "examples/deploy/"+file)) })
	}
}

// cron runs a crontab's line on two hosts at once.
func cron(t *testing.T, h *host, crontab string) {
	line := regexp.MustCompile(`(?m)^(\S+ ){5} *\w+ +(/.*)$`).FindStringSubmatch(crontab)
	settings := strings.Join(regexp.MustCompile(`(?m)^\w+=.*$`).FindAllString(crontab, -1), " ")
	if line == nil {
		t.Fatalf("no line for cron in\n%s", crontab)
	}
	one, two := h.start(t, "env -u DATABASE_URL "+settings+" "+line[2]), h.start(t, "env -u DATABASE_URL "+settings+" "+line[2])
	eventually(t, "one of the two gives way", func() bool { return one.hasEnded() || two.hasEnded() })
	if one.hasEnded() {
		one, two = two, one
	}
	two.ends(t, 0)
	if two.said() != "" {
		t.Errorf("the one that does not lead said %q", two.said())
	}
	one.says(t, "^working")
	check(t, syscall.Kill(one.cmd.Process.Pid, syscall.SIGTERM)) // or it would hold the lock for long
	one.ends(t, 0)
}

// unit starts and stops what a systemd unit does. systemd itself only reads it.
func unit(t *testing.T, h *host, text string) {
	h.write(t, "billing.service", text)
	check(t, os.Chmod(h.path("billing.service"), 0o644))
	if verify, err := exec.LookPath("systemd-analyze"); err == nil {
		for said := range strings.Lines(h.run(t, verify, "verify", h.path("billing.service"))) {
			if strings.Contains(said, "billing.service") { // it reads the machine's units, too
				t.Errorf("systemd-analyze says %s", said)
			}
		}
	}
	setting := func(name string) string {
		match := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(text)
		if match == nil {
			t.Fatalf("the unit has no %s", name)
		}
		return match[1]
	}
	p := h.start(t, "env -u DATABASE_URL "+setting("Environment")+" "+setting("ExecStart"))
	p.says(t, "^working")
	check(t, syscall.Kill(p.cmd.Process.Pid, syscall.SIGTERM))
	p.says(t, "^stopping")
	p.ends(t, 0)
}

// containers runs the commands of a file for Kubernetes or Compose, and asks its probes.
func containers(t *testing.T, h *host, text string) {
	commands := regexp.MustCompile(`(?:args|command): \[((?:lead|run|dashboard), .*)\]`).FindAllStringSubmatch(text, -1)
	if len(commands) == 0 {
		t.Fatalf("no command in\n%s", text)
	}
	paths := regexp.MustCompile(`path: (/\w+)`).FindAllStringSubmatch(text, -1)
	for _, match := range commands {
		port, err := sandbox.FreePort()
		check(t, err)
		line := strings.ReplaceAll(strings.ReplaceAll(match[1], ", ", " "), ":8080", sandbox.Loopback+":"+strconv.Itoa(port))
		h.start(t, "pgelector "+line)
		base := "http://" + sandbox.Loopback + ":" + strconv.Itoa(port)
		if strings.HasPrefix(line, "dashboard") {
			answers(t, base)
		}
		for _, path := range paths {
			answers(t, base+path[1])
		}
	}
}

// answers waits for an answer with status 200.
func answers(t *testing.T, url string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: must.Patience}
	eventually(t, url+" answers", func() bool {
		answer, err := client.Get(url)
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}
