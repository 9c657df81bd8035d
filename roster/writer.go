package roster

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/roster/internal/db"
)

const (
	healthEvery = 200 * time.Millisecond // between two looks at the health of candidates
	tellEvery   = time.Second            // between two writes of changed health
)

// cleanUpEvery is how often a roster whose candidate leads cleans up.
const cleanUpEvery = time.Hour

// run is the writing goroutine. It returns after Close, with a last write.
func (r *Roster) run() {
	defer close(r.ended)
	interval := time.NewTimer(spread(r.interval))
	defer interval.Stop()
	health := time.NewTicker(healthEvery)
	defer health.Stop()
	var cleanUp, told time.Time // the earliest time; when a change of health was last written
	for changed := false; ; {
		wake, looks := r.wake, health.C
		var tell <-chan time.Time
		switch {
		case r.Stats().Err != nil:
			wake, looks = nil, nil // retry at the next interval only
		case changed:
			tell = time.After(time.Until(told.Add(tellEvery)))
		}
		select {
		case <-wake:
			if r.recordChecks() || changed {
				told, changed = time.Now(), false
			}
			_ = r.write(false)
			continue
		case <-looks:
			changed = r.recordChecks() || changed
			continue
		case <-tell:
			r.recordChecks()
			told, changed = time.Now(), false
			_ = r.write(false)
			continue
		case <-interval.C:
		case <-r.closing.Done():
			r.leaveAll()
			_ = r.write(false)
			return
		}
		_, changed = r.recordChecks(), false
		if r.write(true) == nil && time.Now().After(cleanUp) && r.leads() {
			cleanUp = time.Now().Add(spread(cleanUpEvery))
			r.cleanUp()
		}
		interval.Reset(spread(r.interval)) // after the write: slow writes are less frequent
	}
}

// spread returns d, varied by up to a tenth.
func spread(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

// longest returns the most that spread returns.
func longest(d time.Duration) time.Duration { return d + d/10 }

// writeSlack is how long a publication may take, as others see it.
const writeSlack = time.Second

func (r *Roster) leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.leads()
}

func (r *Roster) leaveAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.ledger.present {
		r.ledger.leave(k)
	}
}

// write writes what waits. If all is true it publishes every candidate, else only new ones.
func (r *Roster) write(all bool) error {
	r.mu.Lock()
	r.ledger.expire(time.Now())
	b := r.ledger.batch(all)
	metadata := r.metadata
	overflow := r.overflow
	r.overflow = 0
	timeout := r.timeout
	if r.closing.Err() != nil {
		timeout = time.Until(r.closeBy)
	}
	r.mu.Unlock()
	if overflow > 0 && !r.dropping {
		r.dropping = true
		r.reportError(fmt.Errorf("%w: %d of them, because %d wait to be written already", ErrDropped, overflow, maxWaiting))
	}
	if b.empty() {
		return nil
	}
	err := r.call(context.Background(), timeout, func(ctx context.Context) error { return r.send(ctx, b, metadata) })
	r.reportRefused()
	r.mu.Lock()
	r.stats.Err = err
	if err == nil {
		r.stats.Writes++
		r.ledger.wrote(b)
	} else {
		r.stats.Failures++
	}
	r.mu.Unlock()
	r.reportWrite(err)
	return err
}

// reportWrite reports the first failure of a series, and its end.
func (r *Roster) reportWrite(err error) {
	switch since := r.failing; {
	case err != nil && since.IsZero():
		r.failing = time.Now()
		r.reportError(err)
	case err == nil && !since.IsZero():
		r.failing, r.dropping = time.Time{}, false
		if r.onRecovered != nil {
			backoff.Guard(func() { r.onRecovered(time.Since(since)) })
		}
	}
}

// call runs do on a separate goroutine, because on a dead link a driver call may not
// return when its context ends. Only one call runs at a time.
func (r *Roster) call(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v: %w", timeout.Round(time.Millisecond), context.DeadlineExceeded))
	select {
	case <-r.idle:
	case <-ctx.Done():
		cancel()
		return ErrStuck
	}
	answered := make(chan error, 1)
	go func() {
		defer func() { r.idle <- struct{}{} }()
		defer cancel()
		err := do(ctx)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("roster: %w: %w", context.Cause(ctx), err)
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		select {
		case err := <-answered: // in time after all
			return err
		default:
			return fmt.Errorf("roster: %w", context.Cause(ctx))
		}
	}
}

// cleanUp is the automatic clean-up. It may take one interval, which makes no candidate
// silent. Close ends it.
func (r *Roster) cleanUp() {
	err := r.call(r.closing, r.interval, func(ctx context.Context) error {
		_, err := r.CleanUp(ctx)
		return err
	})
	if err == nil || r.closing.Err() != nil {
		return
	}
	r.mu.Lock()
	r.stats.Failures++
	r.mu.Unlock()
	r.reportError(err)
}

// recordChecks records the health of each candidate whose elector was added, and reports whether any has
// changed.
func (r *Roster) recordChecks() (changed bool) {
	r.mu.Lock()
	electors := slices.Clone(r.electors)
	r.mu.Unlock()
	for _, e := range electors {
		health := e.Health()
		if health.At.IsZero() {
			continue
		}
		o := hooks.Origin{Election: e.Election(), Key: e.Key(), CandidateID: e.CandidateID()}
		r.mu.Lock()
		if !health.Current && r.ledger.present[keyOf(o)] == nil { // it does not take part
			r.mu.Unlock()
			continue
		}
		changed = r.ledger.checked(o, health, time.Now()) || changed
		r.mu.Unlock()
	}
	return changed
}

// reportError calls the function of WithOnError.
func (r *Roster) reportError(err error) {
	if err == nil || r.onError == nil {
		return
	}
	backoff.Guard(func() { r.onError(err) })
}

// maxRows bounds the rows of one statement.
const maxRows = 500

// maxText bounds the texts of other origin, in bytes.
const maxText = 2000

// candidateRow is a row of roster_candidates as Publish reads it.
type candidateRow struct {
	candidate
	Version  string          `json:"version"`
	Metadata json.RawMessage `json:"metadata"`

	Health         *float64          `json:"health"`
	Healthy        *bool             `json:"healthy"`
	Minimum        *float64          `json:"minimum"`
	Why            *string           `json:"why"`
	HealthMetadata map[string]string `json:"health_metadata"`
	CheckedMicros  *int64            `json:"checked_micros"` // ago
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

	of term
}

// maxStale is how many connections of the pool may have been ended while they were idle.
const maxStale = 20

// send writes a batch. lib/pq notices only when a connection is used that it has been ended.
func (r *Roster) send(ctx context.Context, b batch, metadata json.RawMessage) (err error) {
	for range maxStale {
		err = r.sendOnOne(ctx, b, metadata)
		if ctx.Err() != nil || !errors.Is(err, driver.ErrBadConn) && !errors.Is(err, sql.ErrConnDone) {
			break
		}
	}
	return err
}

// sendOnOne writes a batch on one connection: candidates first, because the commits of the
// others may wait for a synchronous standby until ctx ends. A failed statement does not stop
// the others.
func (r *Roster) sendOnOne(ctx context.Context, b batch, metadata json.RawMessage) error {
	conn, err := r.pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("roster: take a connection from the pool: %w", pgerr.Connecting(err)) // it says nothing of the tables
	}
	defer conn.Close()
	expires := silentAfter * r.interval
	err = explain("publish candidates", inChunks(candidateRows(b.publish, r.version, metadata), func(rows string) error {
		return tell(ctx, r.config, conn, func(q *db.Queries) error {
			return q.Publish(ctx, db.PublishParams{Candidates: rows, ExpiresMillis: expires.Milliseconds()})
		})
	}, func(row candidateRow, err error) {
		r.refuse(func(l *ledger) { l.refuseCandidate(row.candidateKey, err) })
	}))
	if ctx.Err() != nil {
		return err
	}
	// After these waits, because the rows say how long ago something happened.
	return errors.Join(err,
		explain("record terms", inChunks(termRows(b.terms, time.Now()), func(rows string) error {
			return tell(ctx, r.config, conn, func(q *db.Queries) error { return q.RecordTerms(ctx, rows) })
		}, func(row termRow, err error) { r.refuse(func(l *ledger) { l.refuseTerm(row.of, err) }) })),
		explain("mark candidates as left", inChunks(b.leave, func(rows string) error {
			return tell(ctx, r.config, conn, func(q *db.Queries) error { return q.Leave(ctx, rows) })
		}, func(k candidateKey, err error) { r.refuse(func(l *ledger) { l.refuseLeave(k, err) }) })))
}

// inChunks passes the rows to write as JSON, at most maxRows at a time. It calls drop with each
// row that the server refuses.
func inChunks[T any](rows []T, write func(string) error, drop func(T, error)) error {
	for chunk := range slices.Chunk(rows, maxRows) {
		if err := writeRows(chunk, write, drop); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes rows in one statement. If the server refuses them, it writes them in ASCII,
// because the database's encoding may lack a character. If they are refused again, it writes each
// half by itself: otherwise one row would block all others, for ever.
func writeRows[T any](rows []T, write func(string) error, drop func(T, error)) error {
	encoded, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	text := unescape(string(encoded))
	if err = write(text); !isRefused(err) {
		return err
	}
	if plain := strings.Map(ascii, text); plain != text {
		err = write(plain)
	}
	switch {
	case !isRefused(err):
		return err
	case len(rows) == 1:
		drop(rows[0], err)
		return nil
	}
	if err := writeRows(rows[:len(rows)/2], write, drop); err != nil {
		return err
	}
	return writeRows(rows[len(rows)/2:], write, drop)
}

// isRefused reports whether the server refused what is written: two rows with one key (class 21),
// a value, such as a text that its encoding cannot hold (22), or a constraint (23).
func isRefused(err error) bool {
	state := sqlState(err)
	return len(state) == 5 && slices.Contains([]string{"21", "22", "23"}, state[:2])
}

// escapes matches the escapes of Go's JSON.
var escapes = regexp.MustCompile(`\\(u202[89]|.)`)

// unescape writes the characters beyond ASCII that Go escapes as they are: not every encoding
// permits their escapes.
func unescape(text string) string {
	return escapes.ReplaceAllStringFunc(text, func(escape string) string {
		switch escape {
		case `\u2028`:
			return "\u2028"
		case `\u2029`:
			return "\u2029"
		}
		return escape
	})
}

func ascii(r rune) rune {
	if r > unicode.MaxASCII {
		return '?'
	}
	return r
}

// refuse changes the ledger because the server refuses a row.
func (r *Roster) refuse(change func(*ledger)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.ledger)
}

// reportRefused reports the rows that were refused, each once.
func (r *Roster) reportRefused() {
	r.mu.Lock()
	refused := r.ledger.refused
	r.ledger.refused = nil
	r.mu.Unlock()
	for _, err := range refused {
		r.reportError(err)
	}
}

func candidateRows(all []candidate, version string, metadata json.RawMessage) []candidateRow {
	rows := make([]candidateRow, len(all))
	for i, c := range all {
		c.Election = clean(c.Election)
		rows[i] = candidateRow{candidate: c, Version: version, Metadata: metadata}
		if c.metadata != nil {
			rows[i].Metadata = c.metadata
		}
		if c.priority != nil {
			rows[i].Metadata = withPriority(rows[i].Metadata, *c.priority)
		}
		rows[i].tell(c.health)
	}
	return rows
}

// withPriority adds a priority to metadata that has none, if there is room.
func withPriority(metadata json.RawMessage, priority int32) json.RawMessage {
	all := map[string]string{}
	if json.Unmarshal(metadata, &all) != nil || all["priority"] != "" {
		return metadata
	}
	all["priority"] = strconv.Itoa(int(priority))
	more, err := encodeMetadata(all)
	if err != nil {
		return metadata
	}
	return more
}

// tell adds the health to a row. A program or its check may have said anything: what is too long is cut, and
// of metadata that the table cannot hold nothing is told.
func (row *candidateRow) tell(h *elector.Health) {
	if h == nil {
		return
	}
	ago := time.Since(h.At).Microseconds()
	row.Health, row.Healthy, row.Minimum, row.CheckedMicros = &h.Score, &h.Healthy, &h.Minimum, &ago
	if why := clean(h.Why); why != "" {
		row.Why = &why
	}
	if _, err := encodeMetadata(h.Metadata); err == nil {
		row.HealthMetadata = h.Metadata
	}
}

func termRows(all []term, now time.Time) []termRow {
	rows := make([]termRow, len(all))
	for i, t := range all {
		row := termRow{of: t, candidateKey: t.candidateKey, Token: t.token, Election: clean(t.election), ElectedMicros: now.Sub(t.electedAt).Microseconds()}
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
