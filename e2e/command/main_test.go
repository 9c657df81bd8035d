package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// exit has the exit codes that docs/command.md promises.
var exit = struct{ OK, Failure, Negative, Usage, Connect, Lost, Privilege, Refused, SignalBase int }{0, 1, 3, 64, 69, 75, 77, 78, 128}

// programDir holds the program while the tests run.
var programDir string

var buildOnce = sync.OnceValue(func() error {
	args := []string{"build", "-o", filepath.Join(programDir, "pgelector")}
	if tests, ok := debug.ReadBuildInfo(); ok && slices.Contains(tests.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race") // as the tests
	}
	build := exec.Command("go", append(args, "./cmd/pgelector")...)
	build.Dir = "../.." // another module
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
})

// built returns the path of the program, which is built once.
func built(t *testing.T) string {
	t.Helper()
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(programDir, "pgelector")
}

// result is the result of a short run of the program.
type result struct {
	out, err string
	code     int
}

// invoke runs the program and waits for its end, but not for ever. env is added to the test's
// environment.
func invoke(t *testing.T, env []string, args ...string) result {
	t.Helper()
	var out, errs strings.Builder
	program := built(t) // the first call compiles it
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second // for what it has started
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("pgelector %q does not end:\n%s%s", args, out.String(), errs.String())
	}
	if err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			t.Fatal(err)
		}
	}
	said := out.String()
	if args[0] == "doctor" && !slices.Contains(args, "--json") {
		said = unfolded(t, said)
	}
	return result{said, errs.String(), cmd.ProcessState.ExitCode()}
}

// folded is where a line of doctor's goes on in the next one.
var folded = regexp.MustCompile(`\n {23,}`)

// unfolded returns a report of doctor with one line for each check. As it is, it fits a terminal, but for words that are long.
func unfolded(t *testing.T, report string) string {
	t.Helper()
	for line := range strings.Lines(report) {
		if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > 100 && strings.Contains(strings.TrimSpace(line[23:]), " ") {
			t.Errorf("doctor prints %d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	return folded.ReplaceAllString(report, " ")
}

// want fails the test unless the exit code is code and the output contains each text.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("does not say %q, but\n%s%s", text, r.out, r.err)
		}
	}
}

func TestVersionRuns(t *testing.T) {
	t.Parallel()
	long, short := invoke(t, nil, "version"), invoke(t, nil, "--version")
	long.want(t, exit.OK, "pgelector ")
	if long != short {
		t.Errorf("version says %+v, and --version %+v", long, short)
	}
}

// Messages name flags, not options of the Go package, which an operator does not know.
func TestBadUsageHasItsOwnExitCodeAndNamesFlags(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1025)
	for _, tt := range []struct {
		args string
		says string
	}{
		{"no-such-command", "unknown command"},
		{"--no-such-flag", "unknown flag"},
		{"run --election x --no-such-flag -- true", "unknown flag"},
		{"run x --no-such-flag true", "unknown flag: --no-such-flag (flags of the command go after --)"},
		{"run -- true", "the NAME of the election is missing, or --group NAME"},
		{"run --election x", "command is missing: put it after --"},
		{"run x --", "command is missing: put it after --"},
		{"run x y -- true", "want the NAME of one election before --, got 2 arguments"},
		{"run x --election y -- true", "NAME and --election exclude each other"},
		{"run x --group g --shards 2 -- true", "--group and NAME exclude each other"},
		{"run x --wait 1s -- true", "--wait needs --if-free"},
		{"run x --if-free-exit-code 4 -- true", "--if-free-exit-code needs --if-free"},
		{"run x --once --restart-delay 5s -- true", "--once and --restart-delay exclude each other: the command is run once"},
		{"run x --if-free --restart-delay-max 5m -- true", "--if-free and --restart-delay-max exclude each other: the command is run once"},
		{"run x --restart-delay 5m -- true", "--restart-delay 5m0s, --restart-delay-max 1m0s: want"},
		{"run --election x --if-free --if-free-exit-code 256 -- true", "0 to 255"},
		{"run --election x --grace 2s --drain 2s -- true", "does not fit into --drain"},
		{"run --election x --grace 8s -- true", "--heartbeat 2s with --lease 10s and --drain 8.2s (needed by --grace 8s): want 2*heartbeat <= lease - lease/10 - drain, but that is 800ms"},
		{"run --election x --lease 10ms -- true", "--lease 10ms: want 1s <= lease <= 24h0m0s"},
		{"run --election x --max-attempts -1 -- true", "--max-attempts"},
		{"run --election x --candidate wéb -- true", `--candidate "wéb": want printable ASCII`},
		{"run --election " + long + " -- true", "want 1 to 1024 bytes"},
		{"status x " + long, "want 1 to 1024 bytes"},
		{"run --election x\x1b[2J -- true", `"x\x1b[2J" has U+001B`},
		{"status x\u200b", "U+200B"}, {"watch x\u200b", "U+200B"}, {"resign x\u200b", "U+200B"}, {"key x\u200b", "U+200B"}, {"dashboard x\u200b", "U+200B"},
		{"run --group g\u200b --shards 2 -- true", "name of a group"},
		{"run --election x --lease 10.0005s -- true", "--lease 10.0005s: want whole milliseconds"},
		{"status --group g", "--group needs --shards"},
		{"dashboard --group g", "--group and --shards"},
		{"dashboard --shards 3", "--group and --shards"},
		{"dashboard --group g --shards 10001", "--shards 10001: want 1 to 10000"},
		{"dashboard --group g/h --shards 3", `without "/" and "#"`},
		{"status --group g --shards 10001", "--shards 10001: want 1 to 10000"},
		{"status --group g/h --shards 3", `without "/" and "#"`},
		{"watch " + long, "want 1 to 1024 bytes"},
		{"evict " + long, "want 1 to 1024 bytes"},
		{"key " + long, "want 1 to 1024 bytes"},
		{"status --timeout 0s", "--timeout 0s: want more than 0"},
		{"watch x --timeout -1s", "--timeout -1s: want more than 0"},
		{"watch x --interval 0s", "--interval 0s: want more than 0"},
		{"doctor --lease 1ms", "--lease 1ms: want 1s <= lease"},
		{"run --election x --synchronous-standby 9s -- true", "--synchronous-standby 9s with --lease 10s: want the longest lease of all candidates: 10s <= longest lease <= 24h0m0s"},
		{"run --election x --if-free --synchronous-standby 10s -- true", "--if-free and --synchronous-standby exclude each other"},
		{"run --election x --preempt-delay 9s -- true", "--preempt-delay 9s: want a priority, too"},
		{"run --election x --priority 2147483648 -- true", "--priority"},
		{"run --group g --shards 2 --priority -3 -- true", "--priority -3: a shared session, and so a member of a group of shards, cannot have a priority"},
		{"run --election x --lock-delay 9s -- true", "--lock-delay 9s with --lease 10s: want the longest lease of all candidates: 10s <= longest lease <= 24h0m0s"},
		{"run --election x --takeover sit -- true", "want deputy, wait or poll"},
		{"run --election x --log-level loud -- true", "--log-level"},
		{"run --election x --driver odbc -- true", "pgx or pq"},
		{"run --election x --dsn postgres://u:hunter2@h:port/ -- true", "not shown here"},
		{"status --dsn postgres://u:hunter2@x@h/", "percent-encode the password"},
		{"doctor -dsn=postgres://u:hunter2@h/", "unknown shorthand flag"},
		{"doctor postgres://u:hunter2@h/", "unknown command"},
		{"postgres://u:hunter2@h/", "unknown command"},
		{"status postgres://u:hunter2@h/", "not a connection string"},
		{"watch", "want the NAME of one election, got 0 arguments\nSee pgelector watch --help."},
		{"evict", "want the NAME"},
		{"key a b", "got 2 arguments"},
		{"run --election x --group g --shards 2 -- true", "--group and --election exclude each other"},
		{"run --election x --shards 2 -- true", "--shards needs --group NAME"},
		{"run --election x --moves 2 -- true", "--moves needs --group NAME"},
		{"run --election x --sticky 1m -- true", "--sticky needs --group NAME"},
		{"run --group g -- true", "--group needs --shards N"},
		{"run --group g --shards=-1 -- true", "--shards -1: want 1 to 10000"},
		{"run --group g --shards 2 --moves 0 -- true", "--moves 0"},
		{"run --group g/h --shards 2 -- true", `without "/" and "#"`},
		{"run --group g --shards 2 --if-free -- true", "--group and --if-free exclude each other"},
		{"run --group g --shards 2 --once -- true", "--group and --once exclude each other"},
		{"run --group g --shards 2 --hold 1s -- true", "--group and --hold exclude each other"},
		{"run --group g --shards 2 --roster who -- true", "--group and --roster exclude each other"},
		{"run --group g --shards 2 --takeover deputy -- true", "--group and --takeover exclude each other"},
		{"run --group g --shards 2 --deputy-interval 1s -- true", "--group and --deputy-interval exclude each other"},
		{"run --group g --shards 2 --synchronous-standby 10s -- true", "--group and --synchronous-standby exclude each other"},
		{"run --group g --shards 2 --scope transaction -- true", "--group and --scope transaction exclude each other"},
		{"run --election x --http 8080 -- true", "--http \"8080\": want an address with a port"},
	} {
		r := invoke(t, []string{"DATABASE_URL=", "PGHOST=127.0.0.1", "PGPORT=1"}, strings.Fields(tt.args)...)
		r.want(t, exit.Usage, tt.says)
		if strings.Contains(r.err, "With") || strings.Contains(r.err, ": elector: ") {
			t.Errorf("%s: the message names Go options:\n%s", tt.args, r.err)
		}
		if strings.Contains(r.out+r.err, "hunter2") {
			t.Errorf("%s: shows the password:\n%s", tt.args, r.err)
		}
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		invoke(t, nil, "completion", shell).want(t, exit.OK, "pgelector")
	}
	invoke(t, nil, "__complete", "run", "--driver", "").want(t, exit.OK, "pgx\npq")
	if help := invoke(t, nil, "run", "--help"); strings.Contains(help.out, "(default )") {
		t.Errorf("a default is shown as nothing:\n%s", help.out)
	}
	if help := invoke(t, nil, "lead", "--help"); strings.Contains(help.out, "--grace") {
		t.Errorf("lead has no --grace:\n%s", help.out)
	}
}
