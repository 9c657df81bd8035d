package status

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// WriteTable writes the snapshot as a table. The elections that one session leads are one row if
// they are the shards of a group, or have no name, unless somebody waits for them.
func (s Snapshot) WriteTable(w io.Writer) error {
	if len(s.Elections) == 0 {
		_, err := fmt.Fprintln(w, "Nobody leads or waits for any election of this database.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	end := func(token, health string) { fmt.Fprintln(table) }
	if s.recorded {
		end = func(token, health string) { fmt.Fprintf(table, "\t%s\t%s\n", token, health) }
	}
	fmt.Fprint(table, "ELECTION\tROLE\tCANDIDATE\tPID\tUSER\tFROM\tLEASE\tSINCE")
	end("TOKEN", "HEALTH")
	shares := s.shares()
	for _, e := range s.Elections {
		name := e.title()
		if share := shares[s.shareOf(e)]; share != nil {
			if share.shown {
				continue
			}
			share.shown, name = true, share.title
		}
		if e.Leader == nil {
			fmt.Fprintf(table, "%s\tnobody leads\t\t\t\t\t\t", name)
			end("", "")
		} else {
			what, since := "", e.Leader.LeadingSince
			if since == nil {
				what, since = "session ", e.Leader.SessionSince
			}
			role := "leads"
			if e.Leader.IsSilent() {
				role = "silent"
			}
			row(table, name, role, *e.Leader, what, since, s.At)
			token := ""
			if e.Token != 0 && name == e.title() {
				token = strconv.FormatInt(e.Token, 10)
			}
			end(token, e.health(e.Leader.ID))
		}
		if e.Deputy != nil {
			row(table, "", "deputy", *e.Deputy, "session ", e.Deputy.SessionSince, s.At)
			end("", e.health(e.Deputy.ID))
		}
		for i, c := range e.Waiting {
			row(table, "", fmt.Sprintf("waits, %d.", i+1), c, "", c.WaitingSince, s.At)
			end("", e.health(c.ID))
		}
		if name != e.title() { // of a share: each shard has followers
			continue
		}
		for _, p := range e.followers() {
			role, since := "follows", ""
			if p.Silent {
				role, since = "not seen", ago("published ", &p.At, s.At)
			}
			fmt.Fprintf(table, "\t%s\t%s\t\t\t\t\t%s", role, Shown(p.ID), since)
			end("", e.health(p.ID))
		}
	}
	return table.Flush()
}

// share names what one session leads: the shards of a group, or keys without a name ("").
type share struct {
	pid   int32
	group string
}

// together is the row of a share.
type together struct {
	title string
	seat  bool // of a group
	keys  int
	shown bool
}

// shares returns what is one row: what a session leads of a group in which it has a seat, and keys
// without a name if there are several.
func (s Snapshot) shares() map[share]*together {
	all := map[share]*together{}
	groups := map[string]bool{} // that have a shard
	for _, e := range s.Elections {
		if group, _, is := strings.Cut(e.Name, "/"); is {
			groups[group] = true
		}
		if of := s.shareOf(e); of.pid != 0 {
			if all[of] == nil {
				all[of] = &together{}
			}
			all[of].keys++
			all[of].seat = all[of].seat || isSeat(e.Name)
		}
	}
	for of, t := range all {
		switch {
		case of.group != "" && t.seat && groups[of.group]:
			t.title = fmt.Sprintf("%s: %s", Shown(of.group), counted(t.keys-1, "shard"))
		case of.group == "" && t.keys > 1:
			t.title = fmt.Sprintf("%d unnamed, of one session", t.keys)
		default:
			delete(all, of)
		}
	}
	return all
}

// shareOf returns the share of which an election is a part. The zero share is none: somebody is
// the deputy, waits, or nobody leads.
func (s Snapshot) shareOf(e Election) share {
	if e.Leader == nil || e.Deputy != nil || len(e.Waiting) > 0 {
		return share{}
	}
	if e.Name == "" {
		return share{e.Leader.PID, ""}
	}
	group, _, ofGroup := strings.Cut(e.Name, "/")
	if isSeat(e.Name) {
		group, _, ofGroup = strings.Cut(e.Name, "#")
	}
	if s.asked || !ofGroup || group == "" {
		return share{}
	}
	return share{e.Leader.PID, group}
}

// isSeat reports whether a name may be that of a seat of a group of shards.
func isSeat(name string) bool {
	_, number, is := strings.Cut(name, "#")
	_, err := strconv.ParseUint(number, 10, 16)
	return is && err == nil
}

func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func (e Election) title() string {
	if e.Name != "" { // whoever may write to the roster may write any name
		return Shown(e.Name)
	}
	return "key " + strconv.FormatInt(e.Key, 10)
}

func row(w io.Writer, name, role string, c Candidate, what string, since *time.Time, at time.Time) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s", name, role, Shown(c.ID), c.PID, Shown(c.User), Shown(c.Address), c.lease(), ago(what, since, at))
}

// lease is the lease, its scope unless that is the usual one, and the priority unless that is 0.
func (c Candidate) lease() string {
	text := "-"
	if c.LeaseMillis != 0 {
		text = (time.Duration(c.LeaseMillis) * time.Millisecond).String()
		switch c.Alive {
		case "yes":
			text += fmt.Sprintf(", %v left", c.left.Round(100*time.Millisecond))
		case "no":
			text += fmt.Sprintf(", ran out %v ago", (-c.left).Round(100*time.Millisecond))
		case "cannot tell":
			if text += ", hidden"; c.untracked() {
				text = strings.TrimSuffix(text, "hidden") + "not tracked"
			}
		}
	}
	if c.Scope == "transaction" {
		text += ", in a transaction"
	}
	if c.Priority != 0 {
		text += fmt.Sprintf(", priority %d", c.Priority)
	}
	return text
}

func ago(what string, since *time.Time, at time.Time) string {
	if since == nil {
		return "-"
	}
	return fmt.Sprintf("%s%s (%v ago)", what, since.Local().Format(time.DateTime), at.Sub(*since).Round(time.Second))
}

// Shown returns a name as people see it. A role may have any name, also one with newlines, that
// looks like lines of its own: one that does not print is quoted.
func Shown(name string) string {
	switch {
	case name == "":
		return "-"
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return strconv.Quote(name)
	}
	return name
}

// Notes tells what the table lacks, and what its rows of many keys are. What is so at each call
// stands in the command's help.
func (s Snapshot) Notes() []string {
	var notes []string
	if s.Cut {
		notes = append(notes, "There are more: name the elections to see them.")
	}
	hidden := false
	for _, e := range s.Elections {
		for _, blocker := range e.Blockers {
			notes = append(notes, fmt.Sprintf("Nobody leads %s: %s.", e.title(), blocker))
		}
		if e.Leader != nil && e.Leader.IsSilent() {
			notes = append(notes, fmt.Sprintf("Nobody leads %s: the lease of %s (backend %d) ran out %v ago, and the server has not ended its session. "+
				"What to do: docs/runbook.md#leader-is-silent", e.title(), Shown(e.Leader.ID), e.Leader.PID, (-e.Leader.left).Round(time.Second)))
		}
		hidden = hidden || e.Leader != nil && e.Leader.SessionSince == nil
		if e.Leader != nil && e.Leader.untracked() {
			notes = append(notes, fmt.Sprintf("Nobody can see whether %s (backend %d) renews its lease, because track_activities is off for its session: set it to on.",
				Shown(e.Leader.ID), e.Leader.PID))
		}
	}
	for of := range s.shares() {
		if of.group == "" {
			notes = append(notes, "The unnamed of one session are its elections, or the shards of a group and one more, the member's seat. "+
				"--group or --roster names them.")
			break
		}
	}
	if hidden {
		notes = append(notes, "This role may not see addresses and times, nor when a lease was renewed: GRANT pg_read_all_stats TO it.")
	}
	return notes
}
