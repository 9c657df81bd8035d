// Command proof runs every proof of the project on one commit, for hours, and keeps the
// figures:
//
//	make proof                    # what has not passed on this code yet
//	make proof STEPS="model soak" # only these
//	make proof SHORT=1            # try the chain in minutes, and keep nothing
//
// A step that has passed is not run again on the same code: the library, or of it only what
// elects, and the files that the step names. Changed documents change no code. Two runs may
// share the machine, with steps that mostly wait beside one that computes.
//
// proof.json has the figures, from which it writes the tables of the documents after each
// step. A step that fails keeps its last figures, and is shown as failed. Without -run it
// only writes the tables.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A record is what one step has found.
type record struct {
	Figures map[string]string `json:"figures"`
	Command string            `json:"command"`
	Commit  string            `json:"commit"`
	Date    string            `json:"date"`
	Code    string            `json:"code,omitempty"`    // identifies the files, without documents and results
	Minutes int               `json:"minutes,omitempty"` // that it took
	Failed  string            `json:"failed,omitempty"`  // the commit at which the step failed since
}

const recordsFile = "e2e/proof/proof.json"

var short = flag.Bool("short", false, "run each step shortened, and keep nothing")

func main() {
	run := flag.Bool("run", false, "run the steps")
	only := flag.String("steps", "", "names of the steps to run, also those that have passed; default: all that have not")
	flag.Parse()
	err := os.Chdir("..") // the root of the repository
	switch {
	case err != nil:
	case *run:
		err = prove(strings.Fields(*only))
	default:
		if err = readPages(); err == nil {
			err = writePages()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

// prove runs the steps one after the other, and keeps the figures of each one that passes.
func prove(only []string) error {
	for _, name := range only {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.name == name }) {
			return fmt.Errorf("there is no step %q", name)
		}
	}
	commit, files, err := committed()
	if err != nil && !*short {
		return err
	}
	records, err := readRecords()
	if err != nil {
		return err
	}
	var chosen []step
	var left time.Duration
	for _, s := range steps {
		r := records[s.name]
		if slices.Contains(only, s.name) || len(only) == 0 && (*short || r.Code != s.code(files) || r.Failed != "") {
			s.minutes = s.about(r)
			chosen = append(chosen, s)
			left += s.takes()
			fmt.Printf("%-11s about %6v  %s\n", s.name, s.takes(), s.chosen())
		}
	}
	fmt.Printf("%d steps, together about %v\n", len(chosen), left)
	var failed []error
	for i, s := range chosen {
		fmt.Printf("\n== %d/%d %s at %s: about %v, all that is left about %v (%s)\n", i+1, len(chosen), s.name, commit, s.takes(), left,
			time.Now().UTC().Format(time.TimeOnly))
		left -= s.takes()
		began := time.Now()
		figures, err := s.run()
		code := s.code(files)
		if _, now, changed := committed(); err == nil && s.code(now) != code && !*short {
			err = errors.Join(errors.New("the code has changed meanwhile"), changed)
		}
		took := time.Since(began)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			fmt.Printf("== %s FAILED after %v: %v\n", s.name, took.Round(time.Second), err)
		} else {
			fmt.Printf("== %s passed in %v: %v\n", s.name, took.Round(time.Second), figures)
		}
		if *short {
			continue
		}
		records, unread := readRecords() // another run may have written some
		if unread != nil {
			return unread
		}
		r := records[s.name]
		if r.Failed = commit; err == nil {
			r = record{Figures: figures, Command: s.command, Commit: commit, Date: time.Now().UTC().Format(time.DateOnly), Code: code,
				Minutes: int(took.Minutes()) + 1}
		}
		records[s.name] = r
		if err := writeRecords(records); err != nil {
			return err
		}
		if err := writePages(); err != nil { // the record has the figures
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d steps failed; 'make proof' tries these again:\n%w", len(failed), len(chosen), errors.Join(failed...))
	}
	return nil
}

// about is how many minutes the step takes: those of its last run, if the command was today's.
func (s step) about(r record) int {
	if r.Minutes > 0 && r.Command == s.command {
		return r.Minutes
	}
	return s.minutes
}

// takes is about how long the step takes.
func (s step) takes() time.Duration {
	if *short {
		return time.Minute
	}
	return time.Duration(s.minutes) * time.Minute
}

// chosen is the command that runs.
func (s step) chosen() string {
	if *short {
		return s.short
	}
	return s.command
}

// run runs the step's command, and returns the figures of its output and its page.
func (s step) run() (map[string]string, error) {
	log := filepath.Join(".cache", "proof", s.name+".log")
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var text bytes.Buffer
	cmd := exec.Command("bash", "-c", s.chosen())
	cmd.Stdout = io.MultiWriter(os.Stdout, file, &text)
	cmd.Stderr = cmd.Stdout
	began := time.Now().Truncate(time.Second)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: see %s", err, log)
	}
	figures, err := s.figures(text.String())
	if err != nil || s.page == "" || *short {
		return figures, err
	}
	if info, err := os.Stat(s.page); err != nil || info.ModTime().Before(began) {
		return nil, errors.Join(fmt.Errorf("it has not written %s", s.page), err)
	}
	return figures, s.read(figures)
}

// read adds the figures of the step's page.
func (s step) read(figures map[string]string) error {
	page, err := os.ReadFile(s.page)
	if err != nil {
		return err
	}
	return s.cells(string(page), figures)
}

// readPages keeps the figures of pages that a command has written by itself.
func readPages() error {
	records, err := readRecords()
	for _, s := range steps {
		if err == nil && s.page != "" {
			err = s.read(records[s.name].Figures)
		}
	}
	if err == nil {
		err = writeRecords(records)
	}
	return err
}

// figures finds the figures in a text: the last match of each, with count_ the number of
// matches, and with list_ all of them.
func (s step) figures(text string) (map[string]string, error) {
	figures := map[string]string{}
	for _, pattern := range s.patterns {
		re := regexp.MustCompile(pattern)
		all := re.FindAllStringSubmatch(text, -1)
		if len(all) == 0 {
			return nil, fmt.Errorf("its output has nothing like %s", pattern)
		}
		for i, name := range re.SubexpNames() {
			if name == "" {
				continue
			}
			var values []string
			for _, match := range all {
				if !slices.Contains(values, match[i]) {
					values = append(values, match[i])
				}
			}
			switch kind, of, _ := strings.Cut(name, "_"); kind {
			case "count":
				figures[of] = fmt.Sprint(len(all))
			case "list":
				figures[of] = strings.Join(values, ", ")
			default:
				figures[name] = values[len(values)-1]
			}
		}
	}
	return figures, nil
}

func readRecords() (map[string]record, error) {
	text, err := os.ReadFile(recordsFile)
	if err != nil {
		return nil, err
	}
	records := map[string]record{}
	return records, json.Unmarshal(text, &records)
}

func writeRecords(records map[string]record) error {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(records); err != nil {
		return err
	}
	return os.WriteFile(recordsFile, text.Bytes(), 0o644)
}

// written are the files that a change of which changes no code.
var written = regexp.MustCompile(`\.(md|svg|png)$|^e2e/proof/proof\.json$|^bench/results\.json$|^e2e/pictures/.*\.json$|^e2e/model/traces/`)

// library are the files of which a user's program is built.
var library = regexp.MustCompile(`^(go\.(mod|sum)|\w+/(.*/)?[^/]*\.(go|sql))$`)

// engine is the part of the library that elects.
var engine = regexp.MustCompile(`^(go\.|(db|elector|fence|internal|queries)/|hooks/[^/]+$)`)

// others are the folders at the root that are no part of the library.
var others = regexp.MustCompile(`^(bench|cmd|e2e|examples|sqlmock_test|tools)/|_test\.go$`)

// committed returns the commit and its files, a line of git ls-tree for each. Nothing but
// written files may differ from the commit.
func committed() (commit string, files []string, err error) {
	status, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil {
		return "", nil, fmt.Errorf("git status: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if name := strings.TrimSpace(line[3:]); !written.MatchString(name) {
			return "", nil, fmt.Errorf("%s is not committed: a proof is of a commit", name)
		}
	}
	tree, err := exec.Command("git", "ls-tree", "-r", "HEAD").Output()
	if err != nil {
		return "", nil, fmt.Errorf("git ls-tree: %w", err)
	}
	head, err := exec.Command("git", "rev-parse", "--short=7", "HEAD").Output()
	return strings.TrimSpace(string(head)), slices.Collect(strings.Lines(string(tree))), err
}

// code identifies the code of which the step speaks.
func (s step) code(files []string) string {
	sum := sha256.New()
	for _, line := range files {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if s.uses(name) {
			sum.Write([]byte(line))
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6])
}

// uses reports whether the step speaks of a file.
func (s step) uses(name string) bool {
	inLibrary := library.MatchString(name) && !others.MatchString(name) && (!s.engine || engine.MatchString(name))
	return !written.MatchString(name) && (s.of == nil || inLibrary || s.of.MatchString(name))
}
