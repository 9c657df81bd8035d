//go:build unix

package conformance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/inbox"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/seat"
)

// A call is a statement of a script.
type call struct {
	*player
	context.Context
	one   *playerSession
	q     *db.Queries
	words []string // the arguments
}

// of is the session after the word "of", or the one that asks.
func (c *call) of() *playerSession {
	if i := slices.Index(c.words, "of"); i >= 0 {
		return c.sessions[c.words[i+1]]
	}
	return c.one
}

// transaction is the transaction that Confirm named last, of the session in the word before
// "inside".
func (c *call) transaction() string {
	if i := slices.Index(c.words, "inside"); i > 0 {
		return c.sessions[c.words[i-1]].transaction
	}
	return ""
}

func inside(transaction bool) string {
	if transaction {
		return ", in a transaction"
	}
	return ""
}

// sessionName is the lock that names a session in EnterTerm.
const sessionName = 70

// verbs has a function for each statement, which runs it and formats the result.
var verbs = map[string]func(*call) (string, error){
	"TryLock": func(c *call) (string, error) {
		high, low := lockkey.Halves(seat.Key(c.key()))
		offerHigh, offerLow := lockkey.Halves(seat.OfferKey(c.candidate(), c.key()))
		look := slices.Contains(c.words, "look")
		row, err := c.q.TryLock(c, db.TryLockParams{Key: c.key(), Settings: c.settings(1), OfferHigh: offerHigh, OfferLow: offerLow,
			Sit: slices.Contains(c.words, "sit"), SeatHigh: high, SeatLow: low, Look: look})
		if look {
			return fmt.Sprintf("%s %s, led by %s %q", row.Outcome, c.name(row.Pid), c.name(row.LeaderPid), row.LeaderID), err
		}
		return row.Outcome + " " + c.name(row.Pid), err
	},
	"TryTransactionLock": func(c *call) (string, error) {
		high, low := lockkey.Halves(seat.Key(c.key()))
		offerHigh, offerLow := lockkey.Halves(seat.OfferKey(c.candidate(), c.key()))
		row, err := c.q.TryTransactionLock(c, db.TryTransactionLockParams{Key: c.key(), Settings: c.settings(1), OfferHigh: offerHigh, OfferLow: offerLow,
			Sit: slices.Contains(c.words, "sit"), SeatHigh: high, SeatLow: low})
		c.one.server, c.one.mark = row.Started, row.Mark
		return fmt.Sprintf("%s %s, seated %v", row.Outcome, c.name(row.Pid), row.Seated), err
	},
	"TryInTransaction": func(c *call) (string, error) {
		rows, err := c.q.TryInTransaction(c)
		return fmt.Sprint(rows, " rows"), err
	},
	"PingTransaction": func(c *call) (string, error) {
		var state string
		ask := c.one.conn.QueryRowContext
		if c.one.tx != nil {
			ask = c.one.tx.QueryRowContext
		}
		err := ask(c, db.PingTransaction).Scan(&state)
		if pgerr.State(err) == "42704" {
			err = nil
		}
		if state != "" && state == c.one.mark {
			return "the mark", err
		}
		return fmt.Sprintf("%q", state), err
	},
	"ShowsSnapshot": func(c *call) (string, error) {
		row, err := c.q.ShowsSnapshot(c, c.sessions[c.words[0]].pid)
		c.one.mark = row.Mark
		return fmt.Sprintf("%s, seen %v", c.name(row.Pid), row.Seen), err
	},
	"NamedStatement": func(c *call) (string, error) {
		_, err := c.q.NamedStatement(c)
		return "ok", err
	},
	"TryAsDeputy": func(c *call) (string, error) {
		row, err := c.q.TryAsDeputy(c, c.key())
		return fmt.Sprint(row.Granted, " ", c.name(row.Pid)), err
	},
	"TryLocks": func(c *call) (string, error) {
		rows, err := c.q.TryLocks(c, pairs(c.words, func(key int64) int64 { return seat.OfferKey(c.one.name, key) }))
		return list(rows, func(r db.TryLocksRow) string { return fmt.Sprint(r.Key, " ", r.Outcome, " ", c.name(r.Pid)) }), err
	},
	"UnlockMany": func(c *call) (string, error) {
		rows, err := c.q.UnlockMany(c, encode(c.words))
		return list(rows, func(r db.UnlockManyRow) string { return fmt.Sprint(r.Key, " ", r.Released) }), err
	},
	"TakenLocks": func(c *call) (string, error) {
		keys, err := c.q.TakenLocks(c, encode(c.words))
		return list(keys, func(key int64) string { return fmt.Sprint(key) }), err
	},
	"Offer": func(c *call) (string, error) {
		high, low := lockkey.Halves(seat.OfferKey(c.words[0], number(c.words[1])))
		offered, err := c.q.TryPair(c, db.TryPairParams{Inside: slices.Contains(c.words, "inside"), High: high, Low: low})
		return fmt.Sprint(offered), err
	},
	"Withdraw": func(c *call) (string, error) {
		high, low := lockkey.Halves(seat.OfferKey(c.words[0], number(c.words[1])))
		withdrawn, err := c.q.UnlockPair(c, db.UnlockPairParams{High: high, Low: low})
		return fmt.Sprint(withdrawn), err
	},
	"OfferStands": func(c *call) (string, error) {
		high, low := lockkey.Halves(seat.OfferKey(c.one.name, c.key()))
		row, err := c.q.PairIsFree(c, db.PairIsFreeParams{High: high, Low: low})
		return fmt.Sprint(!row.Free), err
	},
	"HolderOffers": func(c *call) (string, error) {
		offers, err := c.q.HolderOffers(c, db.HolderOffersParams{Key: c.key(), Offer: seat.OfferKey(c.one.name, c.key())})
		return fmt.Sprint(offers), err
	},
	"UnlockTo": func(c *call) (string, error) {
		row, err := c.q.UnlockTo(c, db.UnlockToParams{Key: c.key(), Candidate: c.words[1], Release: !slices.Contains(c.words, "look")})
		return fmt.Sprintf("first %v, released %v, taken %v", row.First, row.Released, row.Taken), err
	},
	"Notify": func(c *call) (string, error) {
		sent, err := c.q.Notify(c, db.NotifyParams{Channel: c.words[0], Payloads: encode(c.words[1:])})
		return fmt.Sprint(sent), err
	},
	"Unlock": func(c *call) (string, error) {
		released, err := c.q.Unlock(c, c.key())
		return fmt.Sprint(released), err
	},
	"HoldsLock": func(c *call) (string, error) {
		row, err := c.q.HoldsLock(c, db.HoldsLockParams{Pid: c.of().pid, Key: c.key()})
		return fmt.Sprint(row.Held, " ", c.name(row.Pid)), err
	},
	"RollBackAndChain": executed(db.RollBackAndChain),
	"Nothing":          executed(db.Nothing),
	"Savepoint":        executed(db.Savepoint),
	"RollBackToIt":     executed(db.RollBackToIt),
	"ReleaseIt":        executed(db.ReleaseIt),
	"TryPair": func(c *call) (string, error) {
		high, low := lockkey.Halves(c.key())
		granted, err := c.q.TryPair(c, db.TryPairParams{Inside: slices.Contains(c.words, "inside"), High: high, Low: low})
		return fmt.Sprint(granted), err
	},
	"PairIsFree": func(c *call) (string, error) {
		high, low := lockkey.Halves(c.key())
		row, err := c.q.PairIsFree(c, db.PairIsFreeParams{High: high, Low: low})
		return fmt.Sprint(row.Free, " ", c.name(row.Pid)), err
	},
	"LargestHolder": func(c *call) (string, error) {
		rows, err := c.q.LargestHolder(c, encode(c.words))
		return list(rows, func(r db.LargestHolderRow) string { return fmt.Sprintf("%s %q", c.name(r.Pid), r.ApplicationName) }), err
	},
	"TrialLock": func(c *call) (string, error) {
		high, low := lockkey.Halves(c.key())
		shown, err := c.q.TrialLock(c, db.TrialLockParams{Inside: slices.Contains(c.words, "inside"), Key: c.key(), High: high, Low: low})
		return fmt.Sprint(shown), err
	},
	"ValidateLocks": func(c *call) (string, error) {
		rows, err := c.q.ValidateLocks(c, c.of().pid)
		slices.SortFunc(rows, func(a, b db.ValidateLocksRow) int { return cmp.Compare(a.Key, b.Key) })
		return list(rows, func(r db.ValidateLocksRow) string { return fmt.Sprint(r.Key) }), err
	},
	"HeldLocks": func(c *call) (string, error) {
		keys, err := c.q.HeldLocks(c, c.of().pid)
		slices.Sort(keys)
		return list(keys, func(key int64) string { return fmt.Sprint(key) }), err
	},
	"Confirm": func(c *call) (string, error) {
		high, low := lockkey.Halves(c.key())
		row, err := c.q.Confirm(c, db.ConfirmParams{Pid: c.of().pid, Key: c.key(), GuardHigh: high, GuardLow: low})
		c.of().transaction = row.Transaction
		if row.InTransaction {
			return fmt.Sprintf("%v %s, in a transaction, token %d", row.Held, c.name(row.Pid), row.Token), err
		}
		if server := c.of().server; row.Held && server != "" && !strings.HasSuffix(row.Transaction, " "+server) {
			return fmt.Sprintf("%q, and the server started at %s", row.Transaction, server), err
		}
		return fmt.Sprintf("%v %s, %s", row.Held, c.name(row.Pid), c.rises(row.Token, row.Epoch)), err
	},
	"Tokens": func(c *call) (string, error) {
		rows, err := c.q.Tokens(c, pairs(c.words, func(key int64) int64 { return key }))
		var last db.TokensRow
		text := list(rows, func(r db.TokensRow) string { last = r; return fmt.Sprint(r.Key, " ", r.Passed, " ", c.name(r.Pid)) })
		return text + ", " + c.rises(last.Token, last.Epoch), err
	},
	"TokenEpoch": func(c *call) (string, error) { return c.q.TokenEpoch(c) },
	"EnterTerm": func(c *call) (string, error) {
		high, low := lockkey.Halves(c.key())
		of := c.sessions[c.words[1]]
		name := int64(sessionName)
		transaction := c.transaction()
		if slices.Contains(c.words, "earlier") { // a former backend, or server, with the same process id
			name--
			transaction += "0"
		}
		row, err := c.q.EnterTerm(c, db.EnterTermParams{GuardHigh: high, GuardLow: low, Key: c.key(), Pid: of.pid, Name: name, Transaction: transaction, Settings: c.settings(2)})
		c.one.fenced = cmp.Or(row.Fenced, c.one.fenced)
		return row.Outcome, err
	},
	"FencedTransaction": func(c *call) (string, error) {
		name, err := c.q.FencedTransaction(c)
		return fmt.Sprintf("as fenced: %v", name == c.one.fenced), err
	},
	"FencedOutcome": func(c *call) (string, error) {
		name := c.sessions[c.words[0]].fenced
		if slices.Contains(c.words, "earlier") { // of a former server
			name += "0"
		}
		outcome, err := c.q.FencedOutcome(c, name)
		return cmp.Or(outcome, "unknown"), err
	},
	"EndOverdue": func(c *call) (string, error) {
		rows, err := c.q.EndOverdue(c, db.EndOverdueParams{Key: c.key(), LeaseMillis: number(c.words[1])})
		return list(rows, func(r db.EndOverdueRow) string { return fmt.Sprint(c.name(r.Pid), " ", r.Ended, r.Prepared) }), err
	},
	"EvictHolder": func(c *call) (string, error) {
		rows, err := c.q.EvictHolder(c, db.EvictHolderParams{Pid: c.sessions[c.words[1]].pid, Key: c.key(), Pair: seat.Key(c.key())})
		return fmt.Sprint(rows), err
	},
	"Ping": func(c *call) (string, error) {
		row, err := c.q.Ping(c)
		rung := ""
		if row.Rung {
			rung = ", rung"
		}
		return fmt.Sprintf("%s, in recovery %v%s", c.name(row.Pid), row.InRecovery, rung), err
	},
	"Ring": func(c *call) (string, error) {
		high, low := lockkey.Halves(c.key())
		row, err := c.q.Ring(c, db.RingParams{RequestHigh: high, RequestLow: low, Pid: c.sessions[c.words[1]].pid, Answer: c.one.answer})
		c.one.answer = inbox.AnswerKey(row.OwnPid, row.Transaction)
		if row.Answered {
			return fmt.Sprint(row.Rung, ", answered"), err
		}
		return fmt.Sprint(row.Rung), err
	},
	"Answer": func(c *call) (string, error) {
		high, low := lockkey.Halves(c.sessions[c.words[0]].answer)
		told, err := c.q.TryPair(c, db.TryPairParams{High: high, Low: low})
		return fmt.Sprint(told), err
	},
	"Requests": func(c *call) (string, error) {
		started, err := c.q.ServerStart(c)
		if err != nil {
			return "", err
		}
		rows, err := c.q.Requests(c, db.RequestsParams{Pid: c.of().pid, Started: started})
		slices.SortFunc(rows, func(a, b db.RequestsRow) int { return cmp.Compare(a.Key, b.Key) })
		return list(rows, func(r db.RequestsRow) string { return fmt.Sprint(c.name(r.Pid), " ", r.Key) }), err
	},
	"DescribeServer": func(c *call) (string, error) {
		row, err := c.q.DescribeServer(c)
		c.one.server = row.Started
		return fmt.Sprintf("%s, in recovery %v, 14 or newer %v%s", c.name(row.Pid), row.InRecovery, row.VersionNum >= 140000, inside(row.InTransaction)), err
	},
	"InTransaction": func(c *call) (string, error) {
		in, err := c.q.InTransaction(c)
		return fmt.Sprint(in), err
	},
	"Clock": func(c *call) (string, error) {
		micros, err := c.q.Clock(c)
		return fmt.Sprintf("after the session's start: %v", micros >= c.one.started), err
	},
	"ApplySettings": func(c *call) (string, error) {
		n, err := c.q.ApplySettings(c, db.ApplySettingsParams{OnlyLocal: c.words[0] == "local", Settings: c.settings(1)})
		return fmt.Sprint(n), err
	},
	"SessionEnders": func(c *call) (string, error) {
		rows, err := c.q.SessionEnders(c)
		return list(rows, func(r db.SessionEndersRow) string { return r.Name + "=" + r.Value }), err
	},
	"PrepareWait": func(c *call) (string, error) {
		row, err := c.q.PrepareWait(c, db.PrepareWaitParams{Inside: slices.Contains(c.words, "inside"), Settings: c.settings(0)})
		c.one.server, c.one.mark = row.Started, row.Mark
		return fmt.Sprintf("%s, in recovery %v, marked %v", c.name(row.Pid), row.InRecovery, row.Mark != ""), err
	},
	"WaitLock": func(c *call) (string, error) { return "ok", c.q.WaitLock(c) },
	"Holder": func(c *call) (string, error) {
		row, err := c.q.Holder(c, c.key())
		blocks := ""
		if row.Blocks != "" {
			blocks = ", blocks by a " + row.Blocks
		}
		return fmt.Sprintf("%s %q, its start is known %v, a lease of %d ms, in a transaction %v, since known %v%s",
			c.name(row.Pid), row.ApplicationName, row.ConnectedMicros != 0, row.LeaseMillis, row.InTransaction, row.SinceMicros != 0, blocks), err
	},
	"TellPriority": func(c *call) (string, error) {
		told, err := c.q.TellPriority(c, db.TellPriorityParams{Inside: slices.Contains(c.words, "inside"), Priority: int32(number(c.words[0]))})
		return fmt.Sprint(told), err
	},
	"Priority": func(c *call) (string, error) { // as Holder and AdvisoryLocks tell it
		row, err := c.q.Holder(c, c.key())
		if err != nil {
			return "", err
		}
		rows, err := c.q.AdvisoryLocks(c, encode(c.words))
		return fmt.Sprint(row.Priority, list(rows, func(r db.AdvisoryLocksRow) string { return fmt.Sprint(r.Priority) })), err
	},
	"Deputies": func(c *call) (string, error) {
		rows, err := c.q.Deputies(c, db.DeputiesParams{Key: c.key(), Seat: seat.Key(c.key())})
		return list(rows, func(r db.DeputiesRow) string {
			return fmt.Sprintf("%s seated %v waits %v", c.name(r.Pid), r.Seated, r.WaitingMicros != 0)
		}), err
	},
	"Leaders": func(c *call) (string, error) {
		rows, err := c.q.Leaders(c, encode(c.words))
		slices.SortFunc(rows, func(a, b db.LeadersRow) int { return int(a.Key - b.Key) })
		return list(rows, func(r db.LeadersRow) string { return fmt.Sprintf("%d %s %q", r.Key, c.name(r.Pid), r.ApplicationName) }), err
	},
	"CommitSynchronously": func(c *call) (string, error) {
		high, low := lockkey.Halves(c.key())
		scopeHigh, scopeLow := lockkey.Halves(number(c.words[1]))
		row, err := c.q.CommitSynchronously(c, db.CommitSynchronouslyParams{SessionHigh: high, SessionLow: low, ScopeHigh: scopeHigh, ScopeLow: scopeLow})
		return fmt.Sprintf("%s %s, for standbys %q, a record %v", row.Outcome, c.name(row.Pid), row.StandbyNames, row.Lsn != "0/0"), err
	},
	"Identify": func(c *call) (string, error) {
		row, err := c.q.Identify(c)
		return fmt.Sprintf("timeline %d, of a cluster %v", row.Timeline, row.System != 0), err
	},
	"Tenure": func(c *call) (string, error) { // of the session in the second word
		of := c.sessions[c.words[1]]
		row, err := c.q.Tenure(c, db.TenureParams{Pid: of.pid, Key: c.key()})
		last, failed := c.q.LastCheckpoint(c)
		return fmt.Sprintf("%s, timeline %d, runs %v, holds %v", c.name(row.Pid), row.Timeline, row.Ran >= 0 && (failed != nil || last.Started == row.Started), row.Owner != ""), err
	},
	"LastCheckpoint": func(c *call) (string, error) {
		row, err := c.q.LastCheckpoint(c)
		return fmt.Sprintf("timeline %d, a checkpoint on timeline %d, ago %v", row.Timeline, row.Checkpointed, row.Age >= 0), err
	},
	"SynchronousStandbys": func(c *call) (string, error) {
		row, err := c.q.SynchronousStandbys(c, "0/0")
		return fmt.Sprintf("%s, timeline %d, standbys %q", c.name(row.Pid), row.Timeline, row.StandbyNames), err
	},
	"AdvisoryLocks": func(c *call) (string, error) {
		rows, err := c.q.AdvisoryLocks(c, encode(c.words))
		return list(rows, func(r db.AdvisoryLocksRow) string {
			deputy := ""
			if r.Deputy {
				deputy = " deputy"
			}
			if r.Blocks != "" {
				deputy += " blocks by a " + r.Blocks
			}
			return fmt.Sprint(r.Key, " ", c.name(r.Pid), " ", r.Granted, deputy)
		}), err
	},
}

func (p *player) call(ctx context.Context, one *playerSession, words []string) string {
	verb := verbs[words[0]]
	if verb == nil {
		return "no such word: " + words[0]
	}
	q := db.New(one.conn)
	if one.tx != nil {
		q = q.WithTx(one.tx)
	}
	text, err := verb(&call{player: p, Context: ctx, one: one, q: q, words: words[1:]})
	return one.outcome(err, text)
}

// waits reports whether the server shows a session in the queue for any lock.
func (p *player) waits(t *testing.T, one *playerSession) bool {
	t.Helper()
	rows, err := db.New(p.admin).AdvisoryLocks(t.Context(), db.Keys())
	check(t, err)
	return slices.ContainsFunc(rows, func(r db.AdvisoryLocksRow) bool { return r.Pid == one.pid && r.WaitingMicros != 0 })
}

// candidate returns the application_name among the settings, if there is one.
func (c *call) candidate() string {
	for _, word := range c.words {
		if name, ok := strings.CutPrefix(word, "application_name="); ok {
			return name
		}
	}
	return "nobody"
}

func (c *call) key() int64 { return number(c.words[0]) }

// settings returns the arguments from i on, such as idle_session_timeout=300, as JSON.
func (c *call) settings(i int) string {
	all := []map[string]string{}
	for _, word := range c.words[min(i, len(c.words)):] {
		if name, value, ok := strings.Cut(word, "="); ok {
			all = append(all, map[string]string{"name": name, "value": value})
		}
	}
	return encode(all)
}

// name returns the name of the session with the process id.
func (c *call) name(pid int32) string {
	for name, one := range c.sessions {
		if one.pid == pid {
			return name
		}
	}
	return "nobody"
}

// rises describes what the library promises of a token.
func (c *call) rises(token int64, epoch string) string {
	if token == 0 {
		return "no token"
	}
	rises := token > c.token
	c.token = max(c.token, token)
	return fmt.Sprintf("timeline %d, epoch %s, token rises %v", token>>48, epoch, rises)
}

// pairs writes the halves of what of returns of each key.
func pairs(keys []string, of func(key int64) int64) string {
	var all []map[string]int64
	for _, key := range keys {
		high, low := lockkey.Halves(of(number(key)))
		all = append(all, map[string]int64{"key": number(key), "high": int64(high), "low": int64(low)})
	}
	return encode(all)
}

func number(word string) int64 {
	n, _ := strconv.ParseInt(word, 10, 64)
	return n
}

func encode(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

func list[T any](rows []T, text func(T) string) string {
	var all []string
	for _, row := range rows {
		all = append(all, text(row))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// executed is the verb of a statement within the session's transaction.
func executed(statement string) func(*call) (string, error) {
	return func(c *call) (string, error) {
		_, err := c.one.tx.ExecContext(c, statement)
		return "ok", err
	}
}
