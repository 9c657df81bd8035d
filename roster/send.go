package roster

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster/internal/db"
)

// maxRows is how many rows one statement writes at the most.
const maxRows = 500

// maxText is how much is kept of a text that others have made, in bytes.
const maxText = 2000

// publication is what all candidates of the process tell.
type publication struct {
	version  string
	metadata json.RawMessage
	health   *float64
}

// candidateRow is a row of roster_candidates, as Publish reads it.
type candidateRow struct {
	candidate
	Version  string          `json:"version"`
	Metadata json.RawMessage `json:"metadata"`
	Health   *float64        `json:"health"`
}

// termRow is a row of roster_terms, as RecordTerms reads it.
type termRow struct {
	who
	Token         int64         `json:"token"`
	Election      string        `json:"election"`
	ElectedMicros int64         `json:"elected_micros"` // ago
	EndedMicros   *int64        `json:"ended_micros"`   // ago
	Reason        *hooks.Reason `json:"reason"`
	Error         *string       `json:"error"`
}

// send writes a batch on a connection of the pool: terms first, since they are
// what cannot be told again. Whatever can be written is.
func (r *Roster) send(ctx context.Context, b batch, p publication) error {
	conn, err := r.pool.Conn(ctx)
	if err != nil {
		return explain("take a connection from the pool", err)
	}
	defer conn.Close()
	q, expires := r.queries(conn), silentAfter*r.interval
	// Only now, since the pool may have kept us waiting: how long ago it was.
	err = explain("record terms", inChunks(termRows(b.terms, time.Now()), func(rows string) error {
		return q.RecordTerms(ctx, rows)
	}))
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err,
		explain("publish candidates", inChunks(candidateRows(b.publish, p), func(rows string) error {
			return q.Publish(ctx, db.PublishParams{Candidates: rows, ExpiresMillis: expires.Milliseconds()})
		})),
		explain("mark candidates as gone", inChunks(b.leave, func(rows string) error { return q.Leave(ctx, rows) })))
}

// inChunks passes rows to write, as JSON, so many at a time. If the database's
// encoding has no place for a character, they are written again in plain ASCII:
// else they would keep all later ones waiting.
func inChunks[T any](rows []T, write func(string) error) error {
	for chunk := range slices.Chunk(rows, maxRows) {
		text, err := json.Marshal(chunk)
		if err != nil {
			return err
		}
		err = write(string(text))
		if sqlState(err) == untranslatable {
			err = write(strings.Map(ascii, string(text)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const untranslatable = "22P05" // no such character in the server's encoding

func ascii(r rune) rune {
	if r > unicode.MaxASCII {
		return '?'
	}
	return r
}

func candidateRows(all []candidate, p publication) []candidateRow {
	rows := make([]candidateRow, len(all))
	for i, c := range all {
		c.Election = keepable(c.Election)
		rows[i] = candidateRow{c, p.version, p.metadata, p.health}
	}
	return rows
}

func termRows(all []term, now time.Time) []termRow {
	rows := make([]termRow, len(all))
	for i, t := range all {
		row := termRow{who: t.who, Token: t.token, Election: keepable(t.election), ElectedMicros: now.Sub(t.electedAt).Microseconds()}
		if !t.endedAt.IsZero() {
			ended, reason, text := now.Sub(t.endedAt).Microseconds(), t.reason, keepable(t.err)
			row.EndedMicros, row.Reason, row.Error = &ended, &reason, &text
		}
		rows[i] = row
	}
	return rows
}

// keepable is text as PostgreSQL can keep it: an election's name may hold any
// bytes, and an error's text too.
func keepable(text string) string {
	text = text[:min(len(text), maxText)]
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
