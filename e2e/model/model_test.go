package model

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// needsZ3 skips a test without z3; CI installs it.
func needsZ3(t *testing.T) {
	if _, err := exec.LookPath("z3"); err != nil && os.Getenv("CI") == "" {
		t.Skip("z3 is not installed")
	}
}

func TestEveryObligationIsProvedAndEveryWeakenedPartRejected(t *testing.T) {
	needsZ3(t)
	var report strings.Builder
	ok, err := Report(t.Context(), ".", &report)
	if err != nil || !ok {
		t.Fatalf("%v\n%s", err, report.String())
	}
	kept, err := os.ReadFile("RESULTS.md")
	if err != nil || string(kept) != report.String() {
		t.Errorf("RESULTS.md is not what the run says: run make model (%v)", err)
	}
}

func TestEachWeakenedPartHasATraceThatTheWholePartPrevents(t *testing.T) {
	for _, part := range Parts {
		for _, w := range part.Weakens {
			p := part.New(w.Rule)
			trace, err := ReadTrace(TraceFile(part.Name, w.Rule))
			if err == nil {
				err = p.Replay(trace)
			}
			if err != nil {
				t.Errorf("%s without %s: %v", part.Name, w.Rule, err)
			} else if p.forbidden(part.New(""), trace) == "" {
				t.Errorf("%s permits the trace of %s", part.Name, w.Rule)
			}
		}
	}
}

func TestATraceThatDoesNotFitIsRejected(t *testing.T) {
	good, err := ReadTrace(TraceFile("lease", "EARLY_UNLOCK"))
	if err != nil {
		t.Fatal(err)
	}
	p := Lease("EARLY_UNLOCK")
	end := good[len(good)-1:]
	for name, bad := range map[string][]string{
		"a step is missing":            append(append([]string{}, good[:2]...), good[3:]...),
		"the property is not broken":   append(append([]string{}, good[:5]...), end...),
		"it does not say what breaks":  good[:len(good)-1],
		"an action that there is not":  {"resign: S0"},
		"an argument is missing":       {"send: S0"},
		"an argument that is no value": {"send: S0 now"},
	} {
		if p.Replay(bad) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// What the solver and the evaluation say of one state must be the same: z3 is asked about a state that a trace has
// reached, with the values written out.
func TestZ3AndTheEvaluationAgreeOnStates(t *testing.T) {
	needsZ3(t)
	var obligations []Obligation
	var want []string
	for _, part := range Parts {
		for _, w := range part.Weakens {
			p := part.New(w.Rule)
			trace, err := ReadTrace(TraceFile(part.Name, w.Rule))
			if err != nil {
				t.Fatal(err)
			}
			s := p.Example()
			for _, line := range trace[:len(trace)-1] {
				if refusal, err := p.take(s, line); refusal != nil || err != nil {
					t.Fatal(refusal, err)
				}
			}
			for _, c := range append(append([]Claim{}, p.Invariant...), p.Properties...) {
				obligations = append(obligations, Obligation{c.Name, s.smt(c)})
				want = append(want, map[bool]string{true: "sat", false: "unsat"}[s.Holds(c.Expr)])
			}
		}
	}
	got, err := Solve(t.Context(), obligations, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: z3 says %s, the evaluation %s", obligations[i].Name, got[i], want[i])
		}
	}
}

// smt asks whether the claim is true of the state.
func (s *State) smt(c Claim) string {
	var b strings.Builder
	p := newPrinter("", s.sizes)
	s.part.declare(&b, s.sizes)
	for i, v := range s.part.Vars {
		for x := range s.values[i] {
			at, rest := []Expr{}, x
			for k := len(v.Over) - 1; k >= 0; k-- {
				n := s.sizes[v.Over[k]]
				name := element(v.Over[k], rest%n)
				at, rest = append([]Expr{constant(name, 0)}, at...), rest/n
			}
			b.WriteString("(assert (= " + v.At(at...).print(p) + " " + literal(v.Of, s.values[i][x]) + "))\n")
		}
	}
	b.WriteString("(assert " + c.print(p) + ")\n(check-sat)\n")
	return b.String()
}

func literal(of Sort, n int64) string {
	switch {
	case of == Bool:
		return map[int64]string{0: "false", 1: "true"}[n]
	case of != Int && of != Real:
		return element(of, int(n))
	}
	minus := map[bool]string{true: "(- ", false: ""}[n < 0]
	close := map[bool]string{true: ")", false: ""}[n < 0]
	point := map[bool]string{true: ".0", false: ""}[of == Real]
	return minus + N(max(n, -n)).print(nil) + point + close
}

func TestASearchFindsATrace(t *testing.T) {
	p := Lease("SEAT_LEADS")
	trace, _ := p.Search(20_000)
	if trace == nil || p.Replay(trace) != nil {
		t.Errorf("found %v: %v", trace, p.Replay(trace))
	}
	if trace, _ := Lease("").Search(5_000); trace != nil {
		t.Errorf("the whole part breaks: %v", trace)
	}
}

// Every action says which code it stands for, unless it is time or the world.
func TestEachActionNamesItsCode(t *testing.T) {
	for _, part := range Parts {
		for _, a := range part.New("").Actions {
			if a.Code == "" && a.Name != "time passes" && a.Name != "told, and the link is dead" {
				t.Errorf("%s: %s names no code", part.Name, a.Name)
			}
		}
	}
}
