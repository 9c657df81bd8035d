package hookstest

import (
	"fmt"
	"strings"

	"github.com/pgelector/pgelector/hooks"
)

// maxDescribed bounds the runs of equal events in an error.
const maxDescribed = 20

// describe lists events in one line, and counts repetitions.
func describe(events []any) string {
	type run struct {
		what  string
		times int
	}
	var runs []run
	for _, event := range events {
		what := describeOne(event)
		if n := len(runs); n > 0 && runs[n-1].what == what {
			runs[n-1].times++
		} else {
			runs = append(runs, run{what, 1})
		}
	}
	if len(runs) == 0 {
		return "nothing"
	}
	var parts []string
	if len(runs) > maxDescribed {
		parts = append(parts, "...")
		runs = runs[len(runs)-maxDescribed:]
	}
	for _, r := range runs {
		if r.times > 1 {
			r.what += fmt.Sprintf(" ×%d", r.times)
		}
		parts = append(parts, r.what)
	}
	return strings.Join(parts, ", ")
}

func describeOne(event any) string {
	who := label(originOf(event))
	switch e := event.(type) {
	case hooks.Elected:
		return fmt.Sprintf("Elected(%s token=%d)", who, e.Token)
	case hooks.Demoted:
		return fmt.Sprintf("Demoted(%s token=%d %s: %v)", who, e.Token, e.Reason, e.Err)
	case hooks.LeaderChanged:
		return fmt.Sprintf("LeaderChanged(%s %q to %q)", who, e.Previous, e.Current)
	case hooks.Failure:
		return fmt.Sprintf("Failure(%s %s: %v)", who, e.Op, e.Err)
	case hooks.Heartbeat:
		return fmt.Sprintf("Heartbeat(%s token=%d)", who, e.Token)
	case hooks.Campaign:
		what := string(e.Outcome)
		if e.Deputy {
			what += ", deputy"
		}
		return fmt.Sprintf("Campaign(%s %s)", who, what)
	default:
		return fmt.Sprintf("%T", event)
	}
}

func label(o hooks.Origin) string { return o.Election + "/" + o.CandidateID }
