//go:build unix

package history

import (
	"fmt"
	"strings"
	"time"
)

// Proof is a claim about a history, and what came of checking it.
type Proof struct {
	Claim      string
	Checked    string   // over what
	Violations []string // what contradicts the claim; none if it holds
}

// Holds reports whether nothing contradicts the claim.
func (p Proof) Holds() bool { return len(p.Violations) == 0 }

func (p *Proof) violated(format string, args ...any) {
	p.Violations = append(p.Violations, fmt.Sprintf(format, args...))
}

// Verify checks every claim. grace is for how long a leader whose session was
// severed may go on: the lease without its margin.
func Verify(events []Event, grace time.Duration) []Proof {
	proofs := []Proof{Complete(events), OneLeader(events, grace), TokensRise(events), HooksAlternate(events)}
	if count(events, Thawed) > 0 {
		proofs = append(proofs, ThawedKnow(events))
	}
	if count(events, Severed) > 0 {
		proofs = append(proofs, SeveredLearn(events, grace))
	}
	if count(events, Checked) > 0 {
		proofs = append(proofs, LateWrites(events))
	}
	return proofs
}

// FailedProofs joins the violations of all proofs into one error, nil if there are none.
func FailedProofs(proofs []Proof) error {
	var failed []string
	for _, p := range proofs {
		for _, v := range p.Violations {
			failed = append(failed, fmt.Sprintf("not %q: %s", p.Claim, v))
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("history: the proof failed: %s", strings.Join(failed, "; "))
}

func count(events []Event, kind Kind) (n int) {
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// thousands writes 12345 as 12,345.
func thousands(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
