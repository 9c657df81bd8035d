package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/shard"
)

// spread is who leads the shards of a group.
type spread struct {
	Group   string        `json:"group"`
	Shards  int           `json:"shards"`
	Free    []string      `json:"free"` // that nobody leads
	Members []memberShare `json:"members"`
}

type memberShare struct {
	ID     string   `json:"candidate"`
	PID    int32    `json:"pid"`
	Shards []string `json:"shards"`
}

// spreadOf asks the server for the spread of a group, whose shards are the names, or numbers.
func spreadOf(ctx context.Context, pool *sql.DB, group string, numbers int, names []string) (spread, error) {
	if len(names) == 0 {
		names = shard.Numbers(numbers).Names()
	}
	members, free, err := shard.Spread(ctx, pool, group, names)
	s := spread{Group: group, Shards: len(names), Free: append([]string{}, free...), Members: []memberShare{}}
	for _, m := range members {
		s.Members = append(s.Members, memberShare{ID: m.CandidateID, PID: m.PID, Shards: append([]string{}, m.Shards...)})
	}
	return s, err
}

func (s spread) write(w io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(s)
	}
	var shares []string
	for _, m := range s.Members {
		shares = append(shares, fmt.Sprintf("%s %d", m.ID, len(m.Shards)))
	}
	if len(shares) == 0 {
		shares = []string{"nobody leads"}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GROUP\tSHARDS\tLED\tMEMBERS\tSPREAD")
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", s.Group, s.Shards, s.Shards-len(s.Free), len(s.Members), strings.Join(shares, ", "))
	return table.Flush()
}

// result is the exit status: negative if nobody leads one of the shards.
func (s spread) result() error {
	if len(s.Free) > 0 {
		return exit.Silently(exit.Negative)
	}
	return nil
}
