package model

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Limits of z3. Each proof takes some milliseconds.
const (
	eachProof = 10 * time.Second
	allProofs = 10 * time.Minute
)

// TraceFile is the file that keeps the trace of a weakened part, below this folder.
func TraceFile(part, rule string) string {
	return filepath.Join("traces", part+"-"+strings.ToLower(strings.ReplaceAll(rule, "_", "-"))+".txt")
}

// Report proves all parts, rejects all weakened ones, and writes what it found as a document. dir has the kept traces. ok
// is whether everything was as it must be.
func Report(ctx context.Context, dir string, out *strings.Builder) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, allProofs)
	defer cancel()
	ok = true
	out.WriteString(`# What z3 proves

<!-- make model writes this page -->
Each row of the first table is an obligation. z3 finds no model of its negation (unsat), so it holds for any number of sessions,
transactions, terms and primaries, and for all times that the part assumes. The second table takes one rule away at a time: z3 finds
a model of two elements in which an obligation fails (sat), and a kept trace leads from the first state to the broken property.

## Obligations

| part | obligation | z3 |
|---|---|---|
`)
	for _, part := range Parts {
		obligations := part.New("").Obligations(nil)
		answers, err := Solve(ctx, obligations, eachProof)
		if err != nil {
			return false, err
		}
		for i, o := range obligations {
			ok = ok && answers[i] == "unsat"
			fmt.Fprintf(out, "| %s | %s | %s |\n", part.Name, o.Name, answers[i])
		}
	}
	out.WriteString("\n## Weakened\n\n| part | without | what that means | fails by z3 at | trace | what prevents it in the whole protocol |\n|---|---|---|---|---|---|\n")
	for _, part := range Parts {
		for _, w := range part.Weakens {
			p := part.New(w.Rule)
			failed, err := p.fails(ctx)
			if err != nil {
				return false, err
			}
			steps, forbidden := "none", ""
			trace, err := ReadTrace(filepath.Join(dir, TraceFile(part.Name, w.Rule)))
			if err == nil {
				err = p.Replay(trace)
			}
			if err == nil {
				steps, forbidden = fmt.Sprintf("[%d steps](%s)", len(trace)-1, TraceFile(part.Name, w.Rule)), p.forbidden(part.New(""), trace)
			} else {
				fmt.Fprintln(os.Stderr, part.Name, w.Rule, err)
			}
			ok = ok && len(failed) > 0 && err == nil && forbidden != ""
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", part.Name, w.Rule, w.What, strings.Join(failed, "; "), steps, forbidden)
		}
	}
	return ok, nil
}

// fails returns the obligations of a weakened part of which z3 finds that they fail, with two elements of each sort.
func (p *Part) fails(ctx context.Context) (failed []string, err error) {
	sizes := map[Sort]int{}
	for _, s := range p.Sorts {
		sizes[s] = 2
	}
	obligations := p.Obligations(sizes)
	answers, err := Solve(ctx, obligations, eachProof)
	for i, a := range answers {
		if a == "sat" {
			failed = append(failed, obligations[i].Name)
		}
	}
	return failed, err
}

// forbidden says what keeps the whole part from taking the trace of a weakened one to the broken property.
func (p *Part) forbidden(whole *Part, trace []string) string {
	whole.example = p.example
	s := whole.Example()
	if !s.Holds(whole.Assume) {
		return "the times"
	}
	for i, line := range trace[:len(trace)-1] {
		if refusal, err := whole.take(s, line); err != nil {
			return fmt.Sprintf("step %d is none of it", i+1)
		} else if refusal != nil {
			return fmt.Sprintf("step %d, not true: %s", i+1, refusal.Name)
		}
	}
	if s.Broken(whole.Properties) == nil {
		return "the same steps break nothing"
	}
	return ""
}

// ReadTrace reads a kept trace.
func ReadTrace(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}
