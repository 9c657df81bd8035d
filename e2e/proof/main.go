// Command proof runs every proof of the project on one commit, for hours, and keeps the
// figures:
//
//	make proof                    # what has not been run on this code yet
//	make proof STEPS="model soak" # only these
//
// A step that has passed is not run again on the same code; changed documents change no code.
// The figures are in proof.json, from which it writes the table of docs/evidence.md and that of
// the README. Without -run it only writes the tables.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
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

// A figure record is what one step has found.
type record struct {
	Figures map[string]string `json:"figures"`
	Commit  string            `json:"commit"`
	Date    string            `json:"date"`
	Code    string            `json:"code,omitempty"` // identifies the files, without documents and results
}

const recordsFile = "e2e/proof/proof.json"

func main() {
	run := flag.Bool("run", false, "run the steps")
	only := flag.String("steps", "", "names of the steps to run, also those that have passed; default: all that have not")
	flag.Parse()
	err := os.Chdir("..") // the root of the repository
	if err == nil && *run {
		err = prove(strings.Fields(*only))
	}
	if err == nil {
		err = writePages()
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
	var failed []string
	for i, s := range steps {
		code, commit, err := identify()
		if err != nil {
			return err
		}
		records, err := readRecords()
		if err != nil {
			return err
		}
		chosen := slices.Contains(only, s.name)
		if len(only) > 0 && !chosen || !chosen && records[s.name].Code == code {
			continue
		}
		fmt.Printf("\n== %d/%d %s: %s (about %s, %s)\n", i+1, len(steps), s.name, s.command, s.takes, time.Now().UTC().Format(time.TimeOnly))
		figures, err := s.run()
		if err != nil {
			fmt.Printf("== %s failed: %v\n", s.name, err)
			failed = append(failed, s.name)
			continue
		}
		records[s.name] = record{Figures: figures, Commit: commit, Date: time.Now().UTC().Format(time.DateOnly), Code: code}
		text, _ := json.MarshalIndent(records, "", "  ")
		if err := os.WriteFile(recordsFile, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s; 'make proof' tries these again", strings.Join(failed, ", "))
	}
	return nil
}

// run runs the step's command, and returns the figures of its output and its pages.
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
	cmd := exec.Command("bash", "-c", s.command)
	cmd.Stdout = io.MultiWriter(os.Stdout, file, &text)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: see %s", err, log)
	}
	for _, page := range s.pages {
		more, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		text.Write(more)
	}
	return s.figures(text.String())
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

// written are the files that a change of which changes no code.
var written = regexp.MustCompile(`\.(md|svg|png)$|^e2e/proof/proof\.json$|^bench/results\.json$|^e2e/pictures/.*\.json$`)

// identify returns what identifies the code, and the commit. Nothing but written files may
// differ from the commit.
func identify() (code, commit string, err error) {
	status, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil {
		return "", "", fmt.Errorf("git status: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if name := strings.TrimSpace(line[3:]); !written.MatchString(name) {
			return "", "", fmt.Errorf("%s is not committed: a proof is of a commit", name)
		}
	}
	tree, err := exec.Command("git", "ls-tree", "-r", "HEAD").Output()
	if err != nil {
		return "", "", fmt.Errorf("git ls-tree: %w", err)
	}
	sum := sha256.New()
	for line := range strings.Lines(string(tree)) {
		if _, name, _ := strings.Cut(strings.TrimSpace(line), "\t"); !written.MatchString(name) {
			sum.Write([]byte(line))
		}
	}
	head, err := exec.Command("git", "rev-parse", "--short=7", "HEAD").Output()
	return fmt.Sprintf("%x", sum.Sum(nil)[:6]), strings.TrimSpace(string(head)), err
}
