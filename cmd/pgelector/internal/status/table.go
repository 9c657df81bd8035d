package status

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// WriteJSON writes the snapshot as JSON.
func (s Snapshot) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// WriteTable writes the snapshot as a table.
func (s Snapshot) WriteTable(w io.Writer) error {
	if len(s.Elections) == 0 {
		_, err := fmt.Fprintln(w, "Nobody leads or waits for any election of this database.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ELECTION\tROLE\tCANDIDATE\tPID\tUSER\tFROM\tLEASE\tSINCE")
	for _, e := range s.Elections {
		name := e.Name
		if name == "" {
			name = "key " + strconv.FormatInt(e.Key, 10)
		}
		if e.Leader == nil {
			fmt.Fprintf(table, "%s\tnobody leads\t\t\t\t\t\t\n", name)
		} else {
			what, since := "", e.Leader.LeadingSince
			if since == nil {
				what, since = "session ", e.Leader.SessionSince
			}
			row(table, name, "leads", *e.Leader, what, since, s.At)
		}
		if e.Deputy != nil {
			row(table, "", "deputy", *e.Deputy, "session ", e.Deputy.SessionSince, s.At)
		}
		for i, c := range e.Waiting {
			row(table, "", fmt.Sprintf("waits, %d.", i+1), c, "", c.WaitingSince, s.At)
		}
	}
	return table.Flush()
}

func row(w io.Writer, name, role string, c Candidate, what string, since *time.Time, at time.Time) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", name, role, orDash(c.ID), c.PID, orDash(c.User), orDash(c.Address), c.lease(), ago(what, since, at))
}

// lease is the lease, and its scope unless that is the usual one.
func (c Candidate) lease() string {
	text := "-"
	if c.LeaseMillis != 0 {
		text = (time.Duration(c.LeaseMillis) * time.Millisecond).String()
	}
	if c.Scope == "transaction" {
		text += ", in a transaction"
	}
	return text
}

func ago(what string, since *time.Time, at time.Time) string {
	if since == nil {
		return "-"
	}
	return fmt.Sprintf("%s%s (%v ago)", what, since.Local().Format(time.DateTime), at.Sub(*since).Round(time.Second))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Notes explains what the table lacks.
func (s Snapshot) Notes() []string {
	var notes []string
	hidden, unnamed := false, false
	for _, e := range s.Elections {
		hidden = hidden || e.Leader != nil && e.Leader.SessionSince == nil
		unnamed = unnamed || e.Name == ""
	}
	if unnamed {
		notes = append(notes, "The server knows keys, not names: give names to see them, or compare with \"pgelector key NAME\".",
			"Advisory locks of other programs with a 64-bit key also show here.")
	}
	if hidden {
		notes = append(notes, "This role may not see addresses and times: GRANT pg_read_all_stats.")
	}
	return append(notes, "The other followers hold nothing in the server, and do not show. The token is known to the leader only.")
}
