package electortest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pgelector/pgelector/db"
)

// A statement is a statement of this library.
type statement struct {
	name string
	run  func(*execution, *message) (Answer, error)
}

// statements maps the whole text of each statement, so that a changed one is not mistaken
// for the old one. queries/ documents them.
var statements = named(map[string]func(*execution, *message) (Answer, error){
	db.AdvisoryLocks:       advisoryLocks,
	db.ApplySettings:       applySettings,
	db.HolderOffers:        holderOffers,
	db.InTransaction:       inTransaction,
	db.Notify:              notify,
	db.UnlockPair:          unlockPair,
	db.UnlockTo:            unlockTo,
	db.Clock:               clock,
	db.Deputies:            deputies,
	db.CommitSynchronously: commitSynchronously,
	db.Confirm:             confirm,
	db.DescribeServer:      describeServer,
	db.EndOverdue:          endOverdue,
	db.EnterTerm:           enterTerm,
	db.EvictHolder:         evictHolder,
	db.HeldLocks:           heldLocks,
	db.ValidateLocks:       validateLocks,
	db.Holder:              holderOf,
	db.HoldsLock:           holdsLock,
	db.Identify:            identify,
	db.LargestHolder:       largestHolder,
	db.LastCheckpoint:      lastCheckpoint,
	db.Leaders:             leaders,
	db.PairIsFree:          pairIsFree,
	db.Ping:                ping,
	db.PingTransaction:     pingTransaction,
	db.ShowsSnapshot:       showsSnapshot,
	db.NamedStatement:      namedStatement,
	db.TellPriority:        tellPriority,
	db.TryInTransaction:    tryInTransaction,
	db.RepeatableRead:      nothing,
	db.ReadCommitted:       nothing,
	db.RollBackAndChain:    rollBackAndChain,
	db.Savepoint:           savepoint,
	db.RollBackToIt:        rollBackToIt,
	db.ReleaseIt:           releaseIt,
	db.PrepareWait:         prepareWait,
	db.Requests:            standingRequests,
	db.Ring:                ring,
	db.ServerStart:         serverStart,
	db.SessionEnders:       sessionEnders,
	db.SynchronousStandbys: synchronousStandbys,
	db.TakenLocks:          takenLocks,
	db.Tenure:              tenure,
	db.Tokens:              tokens,
	db.FencedTransaction:   fencedTransaction,
	db.FencedOutcome:       fencedOutcome,
	db.TryLock:             tryLock,
	db.TryElection:         tryElection,
	db.ConfirmElection:     confirmElection,
	db.HoldsElection:       holdsElection,
	db.WhoAnswers:          whoAnswers,
	db.TryTransactionLock:  tryTransactionLock,
	db.TryAsDeputy:         tryAsDeputy,
	db.TryLocks:            tryLocks,
	db.UnlockMany:          unlockMany,
	db.TryPair:             tryPair,
	db.TrialLock:           trialLock,
	db.Unlock:              unlock,
	db.WaitLock:            waitLock,
	db.TokenEpoch:          tokenEpoch,
})

func named(runs map[string]func(*execution, *message) (Answer, error)) map[string]statement {
	all := map[string]statement{}
	for text, run := range runs {
		all[text] = statement{name: nameOf(text), run: run}
	}
	return all
}

// nameOf returns the name of a statement of this library, or "".
func nameOf(text string) string {
	rest, ok := strings.CutPrefix(text, "-- name: ")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// find returns the function that executes a statement.
func find(text string) (name string, run func(*execution, *message) (Answer, error)) {
	if s, known := statements[text]; known {
		return s.name, s.run
	}
	if name := nameOf(text); name != "" {
		return name, notImplemented
	}
	return text, others
}

func savepoint(x *execution, _ *message) (Answer, error) {
	x.tx.savepoints = append(x.tx.savepoints, x.server.locks.grants(x.backend))
	return Answer{}, nil
}

// rollBackToIt releases the locks that were taken since. A transaction changes nothing else.
func rollBackToIt(x *execution, _ *message) (a Answer, err error) {
	last := len(x.tx.savepoints) - 1
	if last < 0 {
		return a, newError("3B001", "savepoint \"pgelector\" does not exist")
	}
	x.server.locks.restore(x.backend, x.tx.savepoints[last])
	return a, nil
}

func releaseIt(x *execution, _ *message) (a Answer, err error) {
	last := len(x.tx.savepoints) - 1
	if last < 0 {
		return a, newError("3B001", "savepoint \"pgelector\" does not exist")
	}
	x.tx.savepoints = x.tx.savepoints[:last]
	return a, nil
}

func nothing(*execution, *message) (Answer, error) { return Answer{}, nil }

// rollBackAndChain begins a transaction in place of the last one.
func rollBackAndChain(x *execution, _ *message) (Answer, error) {
	err := x.end(false)
	x.begin()
	x.tx = x.backend.tx
	return Answer{}, err
}

func notImplemented(_ *execution, m *message) (Answer, error) {
	return Answer{}, newError(unsupported, "electortest does not implement the statement %s: it needs a real server, or is of another version of pgelector", nameOf(m.query))
}

// one returns an answer of one row.
func one(row ...any) Answer { return Answer{Rows: [][]any{row}} }

func (m *message) integer(i int) int64 { n, _ := m.args[i].(int64); return n }
func (m *message) text(i int) string   { s, _ := m.args[i].(string); return s }
func (m *message) bool(i int) bool     { b, _ := m.args[i].(bool); return b }

func (m *message) integers(i int) (all []int64, err error) {
	texts, err := decode[[]string](m.text(i))
	for _, text := range texts {
		n, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil {
			return nil, newError("22P02", "invalid input syntax for type bigint: %q", text)
		}
		all = append(all, n)
	}
	return all, err
}

// apply sets and counts the wanted settings.
func (x *execution) apply(text string, local bool, wanted func(setting) bool) (n int64, err error) {
	all, err := decode[[]setting](text)
	for _, one := range all {
		if !wanted(one) {
			continue
		}
		if err := x.settings.set(one.Name, one.Value, local); err != nil {
			return 0, err
		}
		n++
	}
	return n, err
}

func (x *execution) knows(one setting) bool {
	_, known := x.settings.get(one.Name)
	return known
}

func (x *execution) knowsOrOwn(one setting) bool {
	return strings.HasPrefix(one.Name, "pgelector.") || x.knows(one)
}

func describeServer(x *execution, _ *message) (Answer, error) {
	in, err := x.inTransaction()
	return one(int64(x.pid), x.server.recovery, int64(versionNum), versionText, x.server.start(), in), err
}

// transactionSetting is the mark of a transaction, to which it is local.
const transactionSetting = "pgelector.transaction"

// mark is what no other transaction has: in virtual time, several may begin at one instant.
func (x *execution) mark() string { return fmt.Sprint(x.server.start(), "/", x.pid, "/", x.begun) }

// isMarked reports whether an earlier statement of this transaction has set its mark.
func (x *execution) isMarked() bool {
	value, _ := x.settings.get(transactionSetting)
	return value == x.mark()
}

func (x *execution) setMark() error { return x.settings.set(transactionSetting, x.mark(), true) }

// inTransaction reports isMarked, and marks the transaction.
func (x *execution) inTransaction() (bool, error) {
	if x.isMarked() {
		return true, nil
	}
	return false, x.setMark()
}

func inTransaction(x *execution, _ *message) (Answer, error) { return one(x.isMarked()), nil }

func ping(x *execution, _ *message) (Answer, error) {
	free, err := x.server.locks.try(x.backend, bellOf(int64(x.pid)), exclusive, bySession)
	if free {
		x.server.locks.unlock(x.backend, bellOf(int64(x.pid)), exclusive)
	}
	return one(int64(x.pid), x.server.recovery, !free), err
}

// bellClass is the first integer of each bell.
const bellClass = 983268819

// bellOf is the bell of a backend's session.
func bellOf(pid int64) lockID { return twoIntegers(bellClass, pid) }

func serverStart(x *execution, _ *message) (Answer, error) { return one(x.server.start()), nil }

func ring(x *execution, m *message) (Answer, error) {
	rung := false
	asked, err := x.server.locks.try(x.backend, twoIntegers(m.integer(0), m.integer(1)), shared, byTransaction)
	if err == nil && asked {
		rung, err = x.server.locks.try(x.backend, bellOf(m.integer(2)), shared, byTransaction)
	}
	l := x.server.locks.locks[pair(m.integer(3))]
	leader := x.server.backends[int32(m.integer(2))]
	answered := l != nil && leader != nil && l.holder(leader) != nil && l.holder(leader).holds(exclusive)
	return one(rung, int64(x.pid), x.tx.name(), answered), err
}

// standingRequests names a transaction by a number that is its own until the server restarts.
func standingRequests(x *execution, m *message) (a Answer, err error) {
	bell := x.server.locks.locks[bellOf(m.integer(1))]
	if bell == nil || m.text(0) != x.server.start() {
		return a, nil
	}
	for _, h := range bell.holders {
		if !h.holds(shared) || h.b.tx == nil {
			continue
		}
		name, _ := h.b.settings.get("application_name")
		transaction := h.b.tx.name()
		for _, id := range x.server.locks.of(h.b) {
			if own := x.server.locks.locks[id].holder(h.b); id.objsubid == 2 && id.key != 0 && id.key>>32 != bellClass && own != nil && own.holds(shared) {
				a.Rows = append(a.Rows, []any{transaction, id.key, int64(h.b.pid), name, "postgres", ""})
			}
		}
	}
	return a, nil
}

func pingTransaction(x *execution, _ *message) (Answer, error) {
	value, _ := x.settings.get(transactionSetting)
	return one(value), nil
}

// showsSnapshot: the server has no snapshots.
func showsSnapshot(x *execution, m *message) (Answer, error) {
	other := x.server.backends[int32(m.integer(0))]
	return one(int64(x.pid), x.server.start(), x.mark(), false, other != nil && other.tx != nil && other != x.backend), nil
}

// namedStatement: the server keeps no prepared statements.
func namedStatement(*execution, *message) (Answer, error) { return Answer{}, nil }

// identify returns the same system identifier for all servers.
func identify(x *execution, _ *message) (Answer, error) {
	return one(int64(1), x.server.shownTimeline(), "", int64(0)), nil
}

func clock(_ *execution, _ *message) (Answer, error) { return one(time.Now().UnixMicro()), nil }

func applySettings(x *execution, m *message) (Answer, error) {
	n, err := x.apply(m.text(1), m.bool(0), x.knows)
	return one(n), err
}

func prepareWait(x *execution, m *message) (Answer, error) {
	if x.server.recovery {
		return one(int64(x.pid), true, "", x.server.start()), nil
	}
	_, err := x.apply(m.text(1), m.bool(0), x.knowsOrOwn)
	if err == nil {
		err = x.tellLease(m.text(1), m.scopeOf(0))
	}
	if err == nil {
		err = x.setMark()
	}
	return one(int64(x.pid), false, x.mark(), x.server.start()), err
}

func sessionEnders(x *execution, _ *message) (a Answer, err error) {
	for _, name := range []string{"idle_in_transaction_session_timeout", "idle_session_timeout", "lock_timeout", "statement_timeout", "tcp_user_timeout"} {
		if d := x.settings.time(name); d > 0 {
			a.Rows = append(a.Rows, []any{name, formatTime(d), "session"})
		}
	}
	return a, nil
}

// waitLock sets lock_timeout for itself only. A timeout or cancel ends the wait without an
// error. The server logs nothing, so it permits waits of any length.
func waitLock(x *execution, _ *message) (a Answer, err error) {
	_, known := x.settings.get("pgelector.role")
	limit, _ := x.settings.get("pgelector.wait")
	key, _ := x.settings.get("pgelector.key")
	if !known {
		return a, newError(undefinedObject, "unrecognized configuration parameter \"pgelector.role\"")
	}
	if err := x.settings.set("lock_timeout", limit, true); err != nil {
		return a, err
	}
	n, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return a, newError("22P02", "invalid input syntax for type bigint: %q", key)
	}
	id := bigint(n)
	s := bySession
	if x.isMarked() {
		s = byTransaction
	}
	err = x.acquire(id, exclusive, s)
	var e *Error
	switch {
	case errors.As(err, &e) && e.Code == lockNotAvailable:
		return a, nil
	case errors.As(err, &e) && e.Code == queryCanceled:
		return a, x.sleep(10 * time.Millisecond)
	}
	return a, err
}

// defaults are the known parameters. Timeouts are in milliseconds, and off.
var defaults = map[string]string{
	"application_name":                    "",
	"client_connection_check_interval":    "0",
	"default_transaction_deferrable":      "off",
	"default_transaction_isolation":       "read committed",
	"idle_in_transaction_session_timeout": "0",
	"idle_session_timeout":                "0",
	"jit":                                 "on",
	"lock_timeout":                        "0",
	"plan_cache_mode":                     "auto",
	"search_path":                         `"$user", public`,
	"statement_timeout":                   "0",
	"synchronous_commit":                  "on",
	"tcp_keepalives_count":                "0",
	"tcp_keepalives_idle":                 "0",
	"tcp_keepalives_interval":             "0",
	"tcp_user_timeout":                    "0",
}

// timeouts are the parameters that are durations.
var timeouts = map[string]bool{
	"client_connection_check_interval":    true,
	"idle_in_transaction_session_timeout": true,
	"idle_session_timeout":                true,
	"lock_timeout":                        true,
	"statement_timeout":                   true,
	"tcp_user_timeout":                    true,
}

// settings are the parameters of a session. A rollback undoes the transaction's changes; its
// end undoes local changes.
type settings struct {
	values map[string]string
	undo   map[string]string // the values before this transaction
	local  map[string]string // the values before local changes
}

// get is current_setting with missing_ok.
func (s *settings) get(name string) (value string, known bool) {
	if value, known = s.values[name]; known {
		return value, true
	}
	value, known = defaults[name]
	return value, known
}

// set is set_config.
func (s *settings) set(name, value string, local bool) error {
	before, known := s.get(name)
	if !known && !strings.Contains(name, ".") {
		return newError(undefinedObject, "unrecognized configuration parameter %q", name)
	}
	if timeouts[name] {
		d, err := parseTime(value)
		if err != nil {
			return newError(invalidValue, "invalid value for parameter %q: %q", name, value)
		}
		value = strconv.FormatInt(d.Milliseconds(), 10)
	}
	keep := &s.undo
	if local {
		keep = &s.local
	} else {
		delete(s.local, name)
	}
	if *keep == nil {
		*keep = map[string]string{}
	}
	if _, kept := (*keep)[name]; !kept {
		(*keep)[name] = before
	}
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[name] = value
	return nil
}

// end ends a transaction.
func (s *settings) end(committed bool) {
	maps.Copy(s.values, s.local)
	if !committed {
		maps.Copy(s.values, s.undo)
	}
	s.undo, s.local = nil, nil
}

// time returns the value of a timeout; 0 means off.
func (s *settings) time(name string) time.Duration {
	value, _ := s.get(name)
	d, _ := parseTime(value)
	return d
}

// units are the units of durations (PostgreSQL manual, 20.1.1).
var units = []struct {
	suffix string
	length time.Duration
}{
	{"us", time.Microsecond}, {"ms", time.Millisecond}, {"min", time.Minute},
	{"s", time.Second}, {"h", time.Hour}, {"d", 24 * time.Hour},
	{"", time.Millisecond},
}

// longest is the maximum of a parameter in milliseconds.
const longest = math.MaxInt32 * time.Millisecond

func parseTime(text string) (time.Duration, error) {
	for _, u := range units {
		if digits, ok := strings.CutSuffix(text, u.suffix); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 31)
			if err == nil && n > uint64(longest/u.length) {
				err = strconv.ErrRange
			}
			return time.Duration(n) * u.length, err
		}
	}
	return 0, strconv.ErrSyntax
}

// formatTime formats a duration as current_setting does: in the largest unit without a rest.
func formatTime(d time.Duration) string {
	for _, u := range []int{5, 4, 2, 3, 1} {
		if unit := units[u]; d > 0 && d%unit.length == 0 {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.suffix
		}
	}
	return "0"
}

// A setting is an element of a JSON argument.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func decode[T any](text string) (value T, err error) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return value, newError("22P02", "invalid input syntax for type json: %v", err)
	}
	return value, nil
}
