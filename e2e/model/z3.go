package model

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Solve asks z3 whether each obligation's negation has a model. The answers are sat, unsat (proved) or unknown.
func Solve(ctx context.Context, obligations []Obligation, limit time.Duration) ([]string, error) {
	var in strings.Builder
	for _, o := range obligations {
		fmt.Fprintf(&in, "(set-option :timeout %d)\n%s(reset)\n", limit.Milliseconds(), o.SMT)
	}
	z3 := exec.CommandContext(ctx, "z3", "-in")
	z3.Stdin = strings.NewReader(in.String())
	out, err := z3.Output()
	answers := strings.Fields(string(out))
	if len(answers) != len(obligations) || strings.Contains(string(out), "error") {
		return nil, fmt.Errorf("z3 -in: %w: %.500s", err, out)
	}
	return answers, nil
}
