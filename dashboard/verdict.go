package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/roster"
)

// need says how urgently a row needs somebody.
type need int

const (
	leaderless need = iota // nobody leads
	unhealthy              // a candidate says that it is not well
	unheard                // a candidate was not seen, or did not publish
	none
)

// verdict is what a row tells of an election or a group.
type verdict struct {
	need  need
	Marks []mark // the most urgent first
}

// mark is a badge: its text, and its class in the style sheet.
type mark struct{ Class, Text string }

func (v verdict) isProblem() bool { return v.need != none }

// add adds a mark. The first one decides about the need.
func (v *verdict) add(n need, class, text string) {
	if len(v.Marks) == 0 {
		v.need = n
	}
	v.Marks = append(v.Marks, mark{class, text})
}

// judge says what an election needs. Nothing is good that is not known to be well.
func (g *found) judge(now time.Time, hasRoster bool, before string) verdict {
	var sick, silent, gone []*candidate
	var leader *candidate
	stays, hasDeputy := 0, false
	for _, c := range g.candidates {
		c.Late = c.Late || c.Role == follows && g.lost(c)
		c.assess(now)
		switch {
		case c.Role == leads:
			leader = c
		case c.Role == left || c.Role == blocks:
			continue
		}
		if c.Unhealthy {
			sick = append(sick, c)
		}
		hasDeputy = hasDeputy || c.Role == deputy
		switch {
		case c.Role == unseen:
			gone = append(gone, c)
			continue
		case c.Unseen != "" || c.Late:
			silent = append(silent, c)
		}
		stays++
	}
	var v verdict
	var why reason
	if leader == nil {
		if why = g.vacancy(&v, hasRoster); why == atRest {
			return v
		}
	}
	if leader != nil && leader.expired > 0 {
		v.add(leaderless, "bad", fmt.Sprintf("nobody leads: the lease of %s ran out %s ago, and its session has not ended", leader.ID, lasting(leader.expired)))
		silent = slices.DeleteFunc(silent, func(c *candidate) bool { return c == leader })
	}
	if len(sick) > 0 && why != noneHealthy {
		v.add(unhealthy, "warn", ofAll(sick, leader, func(c *candidate) string { return "is unhealthy (" + c.Health + ")" }, "are unhealthy"))
	}
	if len(silent) > 0 && why != noneSeen {
		v.add(unheard, "warn", ofAll(silent, leader, silence, "were not seen"))
	}
	if len(gone) > 0 && leader != nil && stays == 1 && !hasDeputy {
		v.add(unheard, "bad", "led without a deputy: "+ofEach(gone))
		gone = nil
	}
	switch {
	case len(v.Marks) > 0:
	case leader.Well:
		v.add(none, "good", "led")
	default:
		v.add(none, "plain", "led")
	}
	if len(gone) > 0 && why != noneSeen { // no problem: a process that was killed, and is replaced
		v.Marks = append(v.Marks, mark{"plain", fmt.Sprintf("%s, %d %s: %s", counted(stays, "candidate"), stays+len(gone), before, ofEach(gone))})
	}
	return v
}

// ofEach says of candidates that they were not seen.
func ofEach(gone []*candidate) string {
	var texts []string
	for _, c := range gone[:min(len(gone), maxScores)] {
		texts = append(texts, c.ID+" was not seen for "+c.Unseen)
	}
	if more := len(gone) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// lost reports whether the candidate was killed, or cut off, while it led: it has not recorded the
// end of its last term, as it does at once, and has published nothing since.
func (g *found) lost(c *candidate) bool {
	for _, t := range g.terms { // the newest first
		if t.CandidateID == c.ID {
			return t.Reason == roster.Lost && (t.EndedAt.IsZero() || !c.recorded.PublishedAt.After(t.EndedAt))
		}
	}
	return false
}

// reason is why nobody leads.
type reason int

const (
	anyReason   reason = iota
	noneHealthy        // of the candidates that were seen
	noneSeen           // of the candidates
	atRest             // all have left in order, and nobody named the election
)

// vacancy adds that nobody leads, and why, as far as that is known.
func (g *found) vacancy(v *verdict, hasRoster bool) reason {
	const nobody = "nobody leads"
	var scores []float64
	var seen, blocked bool
	away := time.Duration(-1) // since the last sign of a candidate
	for _, c := range g.candidates {
		switch {
		case c.Role == blocks:
			blocked = true
		case c.Role == left:
		case c.Unseen != "":
			if ago := c.away; away < 0 || ago < away {
				away = ago
			}
		case c.Unhealthy && c.recorded.Health != nil:
			scores = append(scores, *c.recorded.Health)
		default:
			seen = true
		}
	}
	switch {
	case blocked:
		v.add(leaderless, "bad", nobody+": another session keeps the lock")
	case seen || !hasRoster:
		v.add(leaderless, "bad", nobody)
	case len(scores) > 0:
		v.add(leaderless, "bad", fmt.Sprintf("%s: no candidate is healthy (%s)", nobody, listed(scores)))
		return noneHealthy
	case away >= 0:
		v.add(leaderless, "bad", fmt.Sprintf("%s: no candidate was seen for %s", nobody, lasting(away)))
		return noneSeen
	case len(g.candidates) == 0:
		v.add(leaderless, "bad", nobody+": no candidate is known")
	case g.named:
		v.add(leaderless, "bad", nobody+": all candidates have left")
	default:
		v.add(none, "plain", nobody+": all candidates have left")
		return atRest
	}
	return anyReason
}

// maxScores is how many scores are listed.
const maxScores = 5

func listed(scores []float64) string {
	slices.Sort(scores)
	var texts []string
	for _, s := range scores[:min(len(scores), maxScores)] {
		texts = append(texts, score(s))
	}
	if len(scores) > maxScores {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ", ")
}

// silence says that a candidate was not seen.
func silence(c *candidate) string {
	if c.Unseen == "" { // its session sends statements
		return "has published nothing for " + strings.TrimSuffix(c.Seen, " ago")
	}
	return "was not seen for " + c.Unseen
}

// ofAll says something of the leader if it is among the candidates, else of the only candidate, or of
// the number of candidates.
func ofAll(all []*candidate, leader *candidate, ofOne func(*candidate) string, ofMany string) string {
	switch {
	case slices.Contains(all, leader):
		return "the leader " + ofOne(leader)
	case len(all) == 1:
		return "a candidate " + ofOne(all[0])
	}
	return fmt.Sprintf("%d candidates %s", len(all), ofMany)
}
