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

// maxRows bounds the rows of one statement.
const maxRows = 500

// maxText bounds the texts of other origin, in bytes.
const maxText = 2000

// candidateRow is a row of roster_candidates as Publish reads it.
type candidateRow struct {
	candidate
	Version  string          `json:"version"`
	Metadata json.RawMessage `json:"metadata"`
}

// termRow is a row of roster_terms as RecordTerms reads it.
type termRow struct {
	candidateKey
	Token         int64         `json:"token"`
	Election      string        `json:"election"`
	ElectedMicros int64         `json:"elected_micros"` // ago
	EndedMicros   *int64        `json:"ended_micros"`   // ago
	Reason        *hooks.Reason `json:"reason"`
	Error         *string       `json:"error"`
}

// send writes a batch on one connection: terms first, because the next interval publishes
// the candidates again anyway. A failed statement does not stop the others.
func (r *Roster) send(ctx context.Context, b batch, metadata json.RawMessage) error {
	conn, err := r.pool.Conn(ctx)
	if err != nil {
		return explain("take a connection from the pool", err)
	}
	defer conn.Close()
	expires := silentAfter * r.interval
	// After the wait for the pool, because the rows say how long ago something happened.
	err = explain("record terms", inChunks(termRows(b.terms, time.Now()), func(rows string) error {
		return tell(ctx, r.config, conn, func(q *db.Queries) error { return q.RecordTerms(ctx, rows) })
	}))
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err,
		explain("publish candidates", inChunks(candidateRows(b.publish, r.version, metadata), func(rows string) error {
			return tell(ctx, r.config, conn, func(q *db.Queries) error {
				return q.Publish(ctx, db.PublishParams{Candidates: rows, ExpiresMillis: expires.Milliseconds()})
			})
		})),
		explain("mark candidates as left", inChunks(b.leave, func(rows string) error {
			return tell(ctx, r.config, conn, func(q *db.Queries) error { return q.Leave(ctx, rows) })
		})))
}

// inChunks passes the rows to write as JSON, at most maxRows at a time. If the database's
// encoding lacks a character, it writes the chunk in ASCII: otherwise the chunk would
// block all later ones.
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

const untranslatable = "22P05" // the server's encoding lacks a character

func ascii(r rune) rune {
	if r > unicode.MaxASCII {
		return '?'
	}
	return r
}

func candidateRows(all []candidate, version string, metadata json.RawMessage) []candidateRow {
	rows := make([]candidateRow, len(all))
	for i, c := range all {
		c.Election = clean(c.Election)
		rows[i] = candidateRow{c, version, metadata}
	}
	return rows
}

func termRows(all []term, now time.Time) []termRow {
	rows := make([]termRow, len(all))
	for i, t := range all {
		row := termRow{candidateKey: t.candidateKey, Token: t.token, Election: clean(t.election), ElectedMicros: now.Sub(t.electedAt).Microseconds()}
		if !t.endedAt.IsZero() {
			ended, reason, text := now.Sub(t.endedAt).Microseconds(), t.reason, clean(t.err)
			row.EndedMicros, row.Reason, row.Error = &ended, &reason, &text
		}
		rows[i] = row
	}
	return rows
}

// clean returns text that PostgreSQL can store. The name of an election and the text of an
// error may contain any bytes.
func clean(text string) string {
	text = text[:min(len(text), maxText)]
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
