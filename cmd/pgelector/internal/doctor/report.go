package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
)

// level is the result of a check.
type level string

const (
	ok   level = "ok"
	note level = "note" // good to know
	warn level = "warn" // elections run safely, with a drawback
	fail level = "FAIL" // elections cannot run safely
)

// finding is the result of one check.
type finding struct {
	Level level  `json:"level"`
	Check string `json:"check"`
	Text  string `json:"text"`
}

// connectionCheck is the check that fails if nothing else can be checked.
const connectionCheck = "connection"

// slow is how long the checks may take before they say so.
const slow = 2 * time.Second

// Run checks, and writes the verdict and then the findings. It returns an error if the server does not answer.
func (x *Examination) Run(ctx context.Context) error {
	if !x.JSON {
		defer time.AfterFunc(slow, func() { fmt.Fprintln(x.Log, "Checking: waiting for the server …") }).Stop()
	}
	err := x.run(ctx)
	report := x.write
	if x.JSON {
		report = x.writeJSON
	}
	if failed := exit.With(exit.Failure, errors.Join(report(err), x.writeReport(err))); err == nil {
		return failed
	}
	return err
}

// Healthy reports after Run whether elections run safely.
func (x *Examination) Healthy() bool { return len(x.checks(fail)) == 0 }

// say reports the result of a check.
func (x *Examination) say(v level, check, format string, args ...any) {
	x.found = append(x.found, finding{v, check, x.Target.Scrub(fmt.Sprintf(format, args...))})
}

// checks names those with that result.
func (x *Examination) checks(v level) (names []string) {
	for _, f := range x.found {
		if f.Level == v && !slices.Contains(names, f.Check) {
			names = append(names, f.Check)
		}
	}
	return names
}

func (x *Examination) write(failure error) error {
	if failure != nil && len(x.found) == 0 {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", x.verdict(failure))
	if len(x.can) > 0 {
		x.writeCapabilities(&text, true)
	}
	for _, f := range x.found {
		line(&text, fmt.Sprintf("%-4s  %-15s  ", f.Level, f.Check), f.Text)
	}
	_, err := fmt.Fprint(x.Out, text.String())
	return err
}

// width is that of the report: a terminal, or a page of a ticket, shows it without breaking its columns.
const width = 100

// line writes a line of the report, and breaks its text at spaces. What follows is indented as the text.
func line(w io.Writer, columns, text string) {
	left := width - len(columns)
	fmt.Fprint(w, columns)
	used := 0
	for word := range strings.SplitSeq(strings.NewReplacer("\n", " ", "\t", "").Replace(text), " ") { // names may have more spaces than one
		length := utf8.RuneCountInString(word)
		switch {
		case used == 0:
		case used+1+length > left:
			fmt.Fprintf(w, "\n%*s", len(columns), "")
			used = 0
		default:
			fmt.Fprint(w, " ")
			used++
		}
		fmt.Fprint(w, word)
		used += length
	}
	fmt.Fprintln(w)
}

// verdict is what an operator wants to know first.
func (x *Examination) verdict(failure error) string {
	failed, drawbacks := strings.Join(x.checks(fail), ", "), strings.Join(x.checks(warn), ", ")
	switch {
	case failure != nil && (failed == "" || failed == connectionCheck): // else what was found before says enough
		return "It is not known whether elections run safely here: the check was not finished."
	case failed != "":
		return "Elections cannot run safely here: fix what says FAIL: " + failed + "."
	case drawbacks != "":
		drawbacks = "\nDrawbacks: see what says warn: " + drawbacks + "."
	}
	lease := x.recommended
	return fmt.Sprintf("Elections run safely here. Recommended lease: %v. With it, stalls of up to %v cost no\n"+
		"leadership, and a frozen or disconnected leader is replaced\n"+
		"after at most %v plus the deputy interval (with the takeover poll: the retry interval).%s",
		lease, time.Duration(float64(lease)*(validity-0.2)), lease, drawbacks)
}

func (x *Examination) writeJSON(failure error) error {
	encoder := json.NewEncoder(x.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Healthy          bool              `json:"healthy"`
		RecommendedLease float64           `json:"recommended_lease_s,omitempty"`
		Findings         []finding         `json:"findings"`
		Scopes           map[string]answer `json:"scopes"`
		Capabilities     []capability      `json:"capabilities"`
	}{failure == nil && x.Healthy(), x.recommended.Seconds(), x.found, x.scopes(), x.can})
}
