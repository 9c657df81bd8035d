package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/status"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
	"github.com/spf13/cobra"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	var group, schema string
	var shards int
	cmd := &cobra.Command{
		Use:   "status [NAME…]",
		Short: "Show who leads, and who is the deputy",
		Long: "Shows who leads each election, since when and from where, who is the deputy, and who else waits in the server, in\n" +
			"order: for the named elections, or for all elections of the database.\n\n" +
			"The server knows keys, not names: status shows the names that you give, those of a roster in the schema pgelector, and\n" +
			"others with --roster. Compare a key with\n" +
			"\"pgelector key NAME\". A lock of another program with a 64-bit key looks like an election. If the leader's session does\n" +
			"not tell since when it leads, status shows the start of the session, which is not later. The other followers hold\n" +
			"nothing in the server, and do not show. Nor does a deputy while nobody leads. What one session leads without a name is\n" +
			"one row: for a member of a group of shards its shards, and its seat, by which the members are counted.\n\n" +
			"With --roster, also shows the names that the roster knows, the fencing tokens, and elections that have candidates and no\n" +
			"leader.\n\n" +
			"With --group, shows in one row how the shards of a group are spread over its members: --shards N numbered ones, or\n" +
			"those that you name.\n\n" +
			"A leader is silent if its lease has run out and the server has not ended its session: nobody leads.\n\n" +
			"Exit status: 0; 3 if nobody leads one of the named elections or shards, or its leader is silent; 64 bad usage; 69 no primary reached.",
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case shards < 0 || shards > 0 && len(names) > 0:
				return exit.Usagef("status: want --shards N of at least 0, or the names of shards")
			case group != "" && shards == 0 && len(names) == 0:
				return exit.Usagef("status: --group needs --shards N, or the names of shards")
			case group == "" && shards > 0:
				return exit.Usagef("status: --shards needs --group")
			case group != "" && schema != "":
				return exit.Usagef("status: --group knows its names, and takes no --roster")
			}
			if group != "" && len(names) == 0 {
				if err := exit.CheckShards(group, shards); err != nil {
					return err
				}
			}
			if err := checkNames(names...); err != nil {
				return err
			}
			pool, target, err := a.connection.open(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.connection.timeout)
			defer cancel()
			if group != "" {
				s, err := spreadOf(ctx, pool, group, shards, names)
				if err != nil {
					return a.failed(target, err)
				}
				if err := s.write(cmd.OutOrStdout(), asJSON); err != nil {
					return err
				}
				return s.result()
			}
			snapshot, err := status.Look(ctx, pool, names...)
			switch {
			case err == nil && schema != "":
				err = addRoster(ctx, pool, schema, &snapshot)
			case err == nil && len(names) == 0:
				_ = addRoster(ctx, pool, defaultRoster, &snapshot) // where there is one, keys have names
			}
			if err != nil {
				return a.failed(target, err)
			}
			return show(cmd, snapshot, asJSON, len(names) > 0)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.Flags().StringVar(&schema, "roster", "", "show the names and tokens of the roster in this schema, such as pgelector")
	cmd.Flags().StringVar(&group, "group", "", "show a group of shards in one row")
	cmd.Flags().IntVar(&shards, "shards", 0, "with --group: the number of its shards")
	a.connection.addTimeout(cmd)
	return cmd
}

// show writes a snapshot. Its result is negative if nobody leads one of the elections that were named.
func show(cmd *cobra.Command, snapshot status.Snapshot, asJSON, named bool) (err error) {
	if asJSON {
		err = snapshot.WriteJSON(cmd.OutOrStdout())
	} else if err = snapshot.WriteTable(cmd.OutOrStdout()); err == nil {
		for _, note := range snapshot.Notes() {
			fmt.Fprintln(cmd.ErrOrStderr(), note)
		}
	}
	if err != nil {
		return err
	}
	for _, e := range snapshot.Elections {
		if named && (e.Leader == nil || e.Leader.IsSilent()) {
			return exit.Silently(exit.Negative)
		}
	}
	return nil
}

// addRoster adds what the roster in a schema knows.
func addRoster(ctx context.Context, pool *sql.DB, schema string, s *status.Snapshot) error {
	r, err := roster.New(pool, roster.WithSchema(schema))
	if err != nil {
		return exit.Usagef("--roster: %v", err)
	}
	return s.Add(ctx, r)
}

func (a *app) watchCommand() *cobra.Command {
	var asJSON bool
	w := status.Watch{Interval: time.Second}
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Print each change of leader and deputy, one line each",
		Long: "Prints who leads and who is the deputy, and then one line for each change, until it is interrupted. When the database is away it\n" +
			"prints one line, and goes on when the database is back. It misses a leader that came and went between two looks.",
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNames(args...); err != nil {
				return err
			}
			if w.Interval <= 0 {
				return exit.Usagef("--interval %v: want more than 0", w.Interval)
			}
			target, err := a.connection.find()
			if err != nil {
				return err
			}
			pool, err := target.Open(connect.Inspection)
			if err != nil {
				return exit.Classify(err)
			}
			out := cmd.OutOrStdout()
			w.Election, w.Timeout = args[0], a.connection.timeout
			w.Report = func(c status.Change) error {
				c.Error = target.Scrub(c.Error)
				if asJSON {
					return exit.With(exit.Failure, c.WriteJSON(out))
				}
				return exit.With(exit.Failure, c.WriteLine(out))
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.failed(target, w.Run(ctx, pool, permanent))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	cmd.Flags().DurationVar(&w.Interval, "interval", w.Interval, "the time between two looks")
	a.connection.addTimeout(cmd)
	return cmd
}

// permanent reports whether asking again is useless.
func permanent(err error) bool {
	return connect.Refused(err) || errors.Is(err, elector.ErrServerReadOnly)
}

// failed gives the error of a question its exit code.
func (a *app) failed(target *connect.Target, err error) error {
	var own *exit.Error
	if known := exit.Classify(err); err == nil || errors.As(known, &own) {
		return known
	}
	return exit.Classify(target.Failed(err))
}

// untilSignal returns a context that ends with a signal. Its cause has the exit code that
// shells use, and no message.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case sig := <-signals:
			cancel(exit.BySignal(sig, exit.ErrSilent))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

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
	if err != nil {
		return spread{}, err
	}
	s := spread{Group: group, Shards: len(names), Free: append([]string{}, free...), Members: []memberShare{}}
	for _, m := range members {
		s.Members = append(s.Members, memberShare{ID: m.CandidateID, PID: m.PID, Shards: append([]string{}, m.Shards...)})
	}
	return s, nil
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
