package main

import (
	"errors"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/elector"
)

func page(t *testing.T) string { return document(t, "command.md") }

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns the page from a heading to the next.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(page(t), "\n"+heading+"\n")
	if !found {
		t.Fatalf("the page has no %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n##")
	return text
}

func TestThePageHasEveryExitCode(t *testing.T) {
	var documented []int
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(page(t), -1) {
		code, _ := strconv.Atoi(row[1])
		documented = append(documented, code)
	}
	want := []int{exit.Failure, exit.Negative, exit.Usage, exit.Connect, exit.Lost, exit.Privilege, exit.Refused, 126, 127}
	if !slices.Equal(documented, want) {
		t.Errorf("documented %v, want %v", documented, want)
	}
}

// The unit tells systemd how to read an exit status. It stops a program by TERM.
func TestTheSystemdUnitRestartsIfThatHelps(t *testing.T) {
	unit := section(t, "### A systemd unit")
	statuses := func(key string) (all []int) {
		line := regexp.MustCompile(`(?m)^` + key + `=([\d ]+)$`).FindStringSubmatch(unit)
		if line == nil {
			t.Fatalf("the unit has no %s", key)
		}
		for field := range strings.FieldsSeq(line[1]) {
			status, _ := strconv.Atoi(field)
			all = append(all, status)
		}
		return all
	}
	if code := exit.CodeOf(exit.BySignal(syscall.SIGTERM, nil)); code != exit.OK {
		t.Errorf("a stop ends with status %d", code)
	}
	if !strings.Contains(unit, "\nRestart=always\n") || strings.Contains(unit, "\nKillSignal=") {
		t.Error("the unit does not always restart, or does not stop by TERM")
	}
	if !strings.Contains(unit, "\nWants=network-online.target\nAfter=network-online.target\n") {
		t.Error("the unit only waits for a network that nothing starts")
	}
	prevented := statuses("RestartPreventExitStatus")
	for err, mends := range map[error]bool{
		elector.ErrServerReadOnly: true, elector.ErrTooEarly: true, connect.ErrConnect: true, elector.ErrGaveUp: true, errors.New("anything else"): true,
		exit.With(exit.Lost, errors.New("lost")): true,
		elector.ErrConfig:                        false, connect.ErrUsage: false, elector.ErrUnsupportedServer: false, elector.ErrSessionPooled: false, elector.ErrUnsupportedServer: false,
	} {
		if code := exit.CodeOf(exit.Classify(err)); slices.Contains(prevented, code) == mends {
			t.Errorf("%v is status %d: a restart mends it is %v, and restarts are prevented at %v", err, code, mends, prevented)
		}
	}
}

func TestThePagesNameOnlyFlagsThatExist(t *testing.T) {
	known := map[string]bool{"--version": true, "--now": true, "--from": true, "--exec": true} // of other programs
	root := (&app{}).command()
	visit := func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
	}
	for _, cmd := range root.Commands() {
		visit(cmd)
	}
	for _, flag := range regexp.MustCompile("--[a-z][a-z-]+").FindAllString(page(t)+document(t, "features.md")+document(t, "operating.md"), -1) {
		if !known[flag] {
			t.Errorf("there is no %s", flag)
		}
	}
	run, _, err := root.Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	run.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !strings.Contains(page(t), "--"+f.Name) {
			t.Errorf("the page does not list run --%s", f.Name)
		}
	})
}

func TestHelpShowsEachFlagOfRunAndLeadInOneGroup(t *testing.T) {
	root := (&app{}).command()
	for _, name := range []string{"run", "lead"} {
		cmd, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		usage := cmd.UsageString()
		if lines := strings.Count(cmd.Long+"\n\n"+usage, "\n"); lines > 80 { // docs/command.md has the rest
			t.Errorf("%s --help has %d lines", name, lines)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if n := len(regexp.MustCompile(`(?m)^ +(?:-\w, )?--`+f.Name+`(?: |$)`).FindAllString(usage, -1)); f.Name != "help" && n != 1 {
				t.Errorf("%s --help shows --%s %d times", name, f.Name, n)
			}
		})
		for line := range strings.Lines(usage) {
			if _, flags, _ := strings.Cut(usage, "\nWho leads:\n"); strings.Contains(flags, line) && len([]rune(line)) > helpWidth+1 {
				t.Errorf("%s --help has a line wider than %d: %q", name, helpWidth, line)
			}
		}
	}
}

func TestEveryFlagHasAVariable(t *testing.T) {
	values := map[string]string{"bool": "true", "duration": "7s", "int": "7", "int32": "7", "int64": "7", "string": "seven"}
	for _, cmd := range (&app{}).command().Commands() {
		if cmd.PersistentPreRunE != nil || cmd.PersistentPreRun != nil {
			t.Errorf("%s hides what reads the variables", cmd.Name())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			t.Setenv("PGELECTOR_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), values[f.Value.Type()])
		})
		if err := flagsFromEnvironment(cmd.Flags()); err != nil {
			t.Errorf("%s: %v", cmd.Name(), err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if want := values[f.Value.Type()]; !f.Changed || want == "" || f.Value.String() != want {
				t.Errorf("%s --%s is %q", cmd.Name(), f.Name, f.Value)
			}
		})
	}
}

// go install …@latest refuses a module that replaces or excludes others.
func TestGoInstallWorksFromTheModuleAsItIs(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^(replace|exclude)\b.*`).Find(text); found != nil {
		t.Errorf("go.mod has %q", found)
	}
}

func TestVersionSaysWhatItWasBuiltFrom(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc123"}, {Key: "vcs.modified", Value: "true"}}}
	if got, want := describe(info), "pgelector v1.2.3 (go1.26.0, revision abc123, modified)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	info.Settings = nil
	if got, want := describe(info), "pgelector v1.2.3 (go1.26.0)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
