//go:build unix

package history

import (
	"fmt"
	"slices"
	"strings"
)

// LateWrites checks every write that came when one with a larger token was
// there, by a process that had checked before that one was written: it was
// refused if it was fenced, and went through if it was not, or the history shows
// nothing. What the store holds must say the same.
func LateWrites(events []Event) Proof {
	p := Proof{Claim: "the late write was refused by InTx and by the token (and went through without)"}
	var seen []string
	for _, way := range Ways {
		late := 0
		for _, e := range events {
			newer, is := overtaken(events, e)
			if e.Way != way || !is {
				continue
			}
			late++
			if len(seen) == 0 {
				seen = append(seen, fmt.Sprintf("%s (token %d) had checked, and wrote after %s (token %d) had written", e.Process, e.Token, newer.Process, newer.Token))
			}
			seen = append(seen, p.judge(events, e, newer))
		}
		if late == 0 {
			p.violated("%s: no write came late", way)
		}
	}
	p.Checked = strings.Join(seen, "; ")
	return p
}

// judge says what became of a late write.
func (p *Proof) judge(events []Event, late, newer Event) string {
	what, holds := "went through", late
	if late.Kind == Refused {
		what, holds = "was refused", newer
	}
	if (late.Kind == Refused) != (late.Way != Unfenced) {
		p.violated("%s: the late write of %s (token %d) %s", late.Way, late.Process, late.Token, what)
	}
	if !slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Checked && e.Leading && e.Process == late.Process && e.Token == late.Token && e.At <= newer.At
	}) {
		p.violated("%s: %s (token %d) had not checked before %s wrote", late.Way, late.Process, late.Token, newer.Process)
	}
	if !slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Found && e.Way == late.Way && e.Process == holds.Process && e.Token == holds.Token
	}) {
		p.violated("%s: the write of %s (token %d) %s, but the store does not hold that of %s", late.Way, late.Process, late.Token, what, holds.Process)
	}
	return fmt.Sprintf("%s: it %s, and the store holds that of %s", late.Way, what, holds.Process)
}

// overtaken reports whether e is a write, or was to be one, that began when one
// with a larger token had been made in the same way.
func overtaken(events []Event, e Event) (newer Event, is bool) {
	if e.Kind != Wrote && e.Kind != Refused {
		return Event{}, false
	}
	i := slices.IndexFunc(events, func(n Event) bool {
		return n.Kind == Wrote && n.Way == e.Way && n.Token > e.Token && n.At.Add(n.Took) <= e.At
	})
	if i < 0 {
		return Event{}, false
	}
	return events[i], true
}
