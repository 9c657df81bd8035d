package election_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// What parts, acquirers and bounds can do, and what they cannot.

type forger struct {
	lock func(context.Context, *election.Election) *election.Lock
}

func (f forger) Acquire(ctx context.Context, e *election.Election) election.Attempt {
	return election.Attempt{Outcome: election.Granted, Lock: f.lock(ctx, e)}
}
func (forger) Close() {}

func TestAnAcquirerCannotGrant(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		other := plain(pool, "other")
		other.Key = 43
		var ended *election.Lock
		for name, lock := range map[string]func(context.Context, *election.Election) *election.Lock{
			"no lock":   func(context.Context, *election.Election) *election.Lock { return nil },
			"zero lock": func(context.Context, *election.Election) *election.Lock { return new(election.Lock) },
			"a lock of another election": func(ctx context.Context, _ *election.Election) *election.Lock {
				return other.Attempt(ctx).Lock
			},
			"a lock that was only tried": func(ctx context.Context, e *election.Election) *election.Lock {
				s, _ := e.Source().Lend(ctx)
				defer s.Fail(errors.New("enough"))
				locks, _, _ := s.Try(ctx, e.Want())
				return locks[0]
			},
			"a lock of an ended term": func(ctx context.Context, e *election.Election) *election.Lock {
				_ = plain(pool, "b").Run(t.Context(), func(_ context.Context, term *election.Term) error { ended = term.Lock(); return nil })
				return ended
			},
		} {
			e := plain(pool, "a")
			e.Acquirer = forger{lock}
			if err := e.Run(t.Context(), func(context.Context, *election.Term) error { t.Error(name, "leads"); return nil }); err == nil {
				t.Error(name, "leads")
			}
		}
	})
}

// A worst part does with what it is given whatever could break something.
type worst struct {
	election.NoPart
	draw *dice
}

// dice is a source that several goroutines use.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (d *dice) IntN(n int) int { return int(d.Int64N(int64(n))) }
func (d *dice) Int64N(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.Int64N(n)
}

func (w worst) Lent(_ context.Context, s *election.Session) error {
	if w.draw.IntN(10) == 0 {
		s.Go(func() { w.misuse(s.Context(), s) })
	}
	return nil
}

func (w worst) Granted(ctx context.Context, s *election.Session, _ election.Grant) error {
	w.misuse(ctx, s)
	return nil
}

func (w worst) Started(s *election.Session) {
	s.AddBound(forever{})
	s.Go(func() {
		for s.Context().Err() == nil {
			w.misuse(s.Context(), s)
			backoff.Sleep(s.Context(), time.Duration(w.draw.Int64N(int64(2*time.Second))))
		}
	})
}

func (w worst) Beat(s *election.Session, _ election.Beat) error {
	go func() { w.misuse(s.Context(), s) }()
	if w.draw.IntN(20) == 0 {
		return errors.New("no")
	}
	return nil
}

func (w worst) Ended(s *election.Session, _ error) { go func() { w.misuse(context.Background(), s) }() }

// misuse asks, judges, listens, ends, loses, closes, and tries locks that nobody confirms.
func (w worst) misuse(ctx context.Context, s *election.Session) {
	switch w.draw.IntN(13) {
	case 12:
		_ = s.Judge(election.Answer{PID: int32(w.draw.IntN(3)), InRecovery: w.draw.IntN(2) == 0})
	case 8:
		if w.draw.IntN(40) == 0 && s.IsStarted() {
			_ = s.Lose(errors.New("it is not the one that counts"))
		}
	case 9:
		_ = s.Heartbeat(ctx)
	case 10:
		_ = s.Prepare(ctx, db.Unlock)
	case 11:
		s.GiveBack() // does nothing to a session that is kept alive
	case 0:
		_, _ = election.Ask(ctx, s, func(q *db.Queries, ctx context.Context, _ any) (string, error) { return q.ServerStart(ctx) }, nil)
	case 1:
		_, _ = election.Ask(ctx, s, func(*db.Queries, context.Context, any) (string, error) { return "", errors.New("never asked") }, nil)
	case 2:
		s.HeartbeatNow()
	case 3:
		s.Fail(errors.New("not yours"))
	case 4:
		if w.draw.IntN(10) == 0 {
			s.EndTerms(errors.New("no"))
		}
	case 5:
		if w.draw.IntN(10) == 0 {
			go s.Close()
		}
	case 6:
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		s.Listen(short, func(ctx context.Context, _ any) error { <-ctx.Done(); return nil })
	case 7:
		key := 1000 + w.draw.Int64N(5)
		if w.draw.IntN(2) == 0 {
			key = 42 // which the session may hold: a server grants it once more
		}
		locks, _, _ := s.Try(ctx, election.Want{Key: key})
		if len(locks) == 1 && locks[0] != nil {
			locks[0].ReleaseBy(func(context.Context, *election.Session) (bool, error) { return true, nil })
			election.GiveUp(locks[0])
			election.GiveUp(locks[0])
		}
	}
}

// A giver gives a session back when its lock is confirmed.
type giver struct{ election.NoPart }

func (giver) Granted(_ context.Context, s *election.Session, _ election.Grant) error {
	s.GiveBack()
	return nil
}

// The connection would keep the lock in the pool, and the settings.
func TestASessionThatWasGrantedALockIsNotGivenBack(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from := sessions("a")
		from.Parts = []election.Part{giver{}}
		term, err := election.New(election.NewSource(pool, from), config(42)).TryCampaign(t.Context())
		if term != nil || !errors.Is(err, pgerr.ErrNotLeader) {
			t.Error(term, err)
		}
		synctest.Wait()
		if n, idle := len(server.Locks()), pool.Stats().Idle; n != 0 || idle != 0 {
			t.Errorf("%d locks are held, %d connections are idle", n, idle)
		}
	})
}

// forever is a bound that never ends.
type forever struct{}

func (forever) Left() time.Duration { return math.MaxInt64 }
func (forever) Expiry() error       { return nil }

func TestNoTwoLeadWhateverPartsDo(t *testing.T) {
	draws := &dice{rand: rand.New(rand.NewPCG(7, 7))}
	faults(t, 5, func(pool *sql.DB, id string) *election.Election {
		from := sessions(id)
		from.Parts = []election.Part{worst{draw: &dice{rand: rand.New(rand.NewPCG(uint64(draws.Int64N(math.MaxInt64)), 1))}}}
		return election.New(election.NewSource(pool, from), config(42))
	}, func(draw *rand.Rand, _ *electortest.Server, p *electortest.Process, pause time.Duration) {
		if draw.IntN(2) == 0 {
			p.Cut(electortest.Loss(draw.IntN(3)))
			time.Sleep(pause)
			p.Mend()
		}
	}, false)
}

type state string

func (s state) Error() string    { return string(s) }
func (s state) SQLState() string { return string(s) }

// chatty asks all the time.
type chatty struct{ election.NoPart }

func (chatty) Started(s *election.Session) {
	s.AddBound(forever{})
	s.Go(func() {
		for s.Context().Err() == nil {
			_, _ = election.Ask(s.Context(), s, func(q *db.Queries, ctx context.Context, _ any) (string, error) { return q.ServerStart(ctx) }, nil)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func TestAPartProlongsNoTerm(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from := sessions("a")
		from.Parts = []election.Part{chatty{}}
		from.Statements = func(*election.Source) election.Statements {
			return answers{beat: func() error { return state("53200") }} // a statement that fails says nothing, and proves nothing
		}
		ctx, cancel := context.WithCancel(t.Context())
		_ = election.New(election.NewSource(pool, from), config(42)).Run(ctx, func(ctx context.Context, term *election.Term) error {
			began := time.Now()
			election.GiveUp(term.Lock())
			if err := term.Verify(ctx); err != nil {
				t.Error("the lock was given up:", err)
			}
			<-ctx.Done()
			if took := time.Since(began); took > 7*time.Second || took < 6900*time.Millisecond || !errors.Is(context.Cause(ctx), pgerr.ErrLeaseExpired) {
				t.Error(took, context.Cause(ctx))
			}
			cancel()
			return nil
		})
	})
}

type refuser struct {
	election.NoPart
	no error
}

func (r refuser) Beat(*election.Session, election.Beat) error { return r.no }

// A part that says no ends the term, and the lock stays held until the work has returned, however long that takes. A part that
// releases the lock in its own way releases it at the same moment.
func TestAPartReleasesNothing(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		no, returned, by := election.Because("a whim", errors.New("no")), false, 0
		from := sessions("a")
		from.Parts = []election.Part{refuser{no: no}}
		err := election.New(election.NewSource(pool, from), config(42)).Run(ctx, func(ctx context.Context, term *election.Term) error {
			s := term.Lock().Session()
			term.Lock().ReleaseBy(func(ctx context.Context, s *election.Session) (bool, error) {
				if by++; !returned {
					t.Error("released while the work goes on")
				}
				return election.Ask(ctx, s, (*db.Queries).Unlock, 42)
			})
			<-ctx.Done() // by the part's error after the first heartbeat
			if reason := election.ReasonOf(context.Cause(ctx)); reason != "a whim" {
				t.Error(reason)
			}
			s.EndTerms(errors.New("no again"))
			go s.Close() // a part of no manners
			s.Fail(no)
			time.Sleep(time.Minute) // longer than drain and lease
			if n := len(server.Locks()); n != 1 || !errors.Is(context.Cause(ctx), no) {
				t.Error(n, context.Cause(ctx))
			}
			returned = true
			cancel()
			return nil
		})
		if by != 1 || !errors.Is(err, context.Canceled) {
			t.Error(by, err)
		}
	})
}

// A bound ends the terms when nothing is left of it, and the session keeps the lock until the work has returned.
func TestABoundEndsTheTermAndNotTheSession(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from := sessions("a")
		from.Parts = []election.Part{bounded{3 * time.Second}}
		ctx, cancel := context.WithCancel(t.Context())
		err := election.New(election.NewSource(pool, from), config(42)).Run(ctx, func(ctx context.Context, term *election.Term) error {
			began := time.Now()
			if left := time.Until(term.Deadline()); left != 3*time.Second {
				t.Error("the deadline is in", left)
			}
			<-ctx.Done()
			if took := time.Since(began); took != 3*time.Second || !errors.Is(context.Cause(ctx), errBound) || term.Valid() {
				t.Error(took, context.Cause(ctx))
			}
			time.Sleep(time.Second)
			if term.Lock().Session().Context().Err() != nil || len(server.Locks()) != 1 {
				t.Error("the session has ended before the work")
			}
			cancel()
			return nil
		})
		canceled(t, err)
	})
}

var errBound = errors.New("a bound")

type bounded struct{ time.Duration }

func (b bounded) Check(context.Context, *election.Source) error { return nil }
func (b bounded) Lent(context.Context, *election.Session) error { return nil }
func (b bounded) Kept(context.Context, *election.Session) error { return nil }
func (b bounded) Ended(*election.Session, error)                {}
func (b bounded) Started(*election.Session)                     {}
func (b bounded) Beat(*election.Session, election.Beat) error   { return nil }
func (b bounded) Granted(_ context.Context, s *election.Session, _ election.Grant) error {
	s.AddBound(until(time.Now().Add(b.Duration)))
	return nil
}

type until time.Time

func (u until) Left() time.Duration { return time.Until(time.Time(u)) }
func (until) Expiry() error         { return errBound }

// An error of a part at each of its places refuses or ends what goes on there, and leaves no lock.
func TestAPartRefusesAtEachPlace(t *testing.T) {
	for place := range 3 {
		onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
			from, c := sessions("a"), config(42)
			from.Parts = []election.Part{&once{place: place}}
			c.Observer = &recorder{}
			if err := election.New(election.NewSource(pool, from), c).Run(t.Context(), func(context.Context, *election.Term) error { return nil }); err != nil {
				t.Error(place, err)
			}
			if failed := c.Observer.(*recorder).failed; failed != 1 {
				t.Error(place, failed, "attempts have failed")
			}
			synctest.Wait()
			if n := len(server.Locks()); n != 0 {
				t.Error(place, n, "locks are left")
			}
		})
	}
}

// once says no once.
type once struct {
	election.NoPart
	place int
	said  bool
}

func (o *once) no(place int) error {
	if place == o.place && !o.said {
		o.said = true
		return fmt.Errorf("no, at %d", place)
	}
	return nil
}

func (o *once) Check(context.Context, *election.Source) error { return o.no(0) }
func (o *once) Lent(context.Context, *election.Session) error { return o.no(1) }
func (o *once) Granted(context.Context, *election.Session, election.Grant) error {
	return o.no(2)
}

type recorder struct {
	quiet
	failed   int
	attempts []election.Attempt
	reasons  []election.Reason
	errs     []error
}

func (r *recorder) Attempted(a election.Attempt) {
	if r.attempts = append(r.attempts, a); a.Outcome == election.Failed {
		r.failed++
	}
}

func (r *recorder) Ended(*election.Term, error) {}

func (r *recorder) Released(*election.Term) {}

func (r *recorder) Demoted(_ *election.Term, cause error) {
	r.reasons = append(r.reasons, election.ReasonOf(cause))
}
func (r *recorder) Failed(_ string, err error) { r.errs = append(r.errs, err) }

// The answerer says what a failed question of a part has cost. Inside a transaction the error has freed the locks, unless the
// answerer has asked behind a savepoint: the term must not go on until the next heartbeat finds that.
func TestTheAnswererSaysWhatAFailedQuestionOfAPartHasCost(t *testing.T) {
	for name, c := range map[string]struct {
		refused, err, want error // of the question
		lost               bool
	}{
		"nothing":                  {state("42P01"), nil, state("42P01"), false},
		"all":                      {state("42P01"), fmt.Errorf("%w: the transaction is over", pgerr.ErrSessionLost), pgerr.ErrSessionLost, true},
		"all, and it was answered": {nil, state("25P02"), state("25P02"), true},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
				from := sessions("a")
				from.Statements = func(*election.Source) election.Statements {
					return answers{aside: func(ask func() error) (refused, err error) { return ask(), c.err }}
				}
				ctx, cancel := context.WithCancel(t.Context())
				err := election.New(election.NewSource(pool, from), config(42)).Run(ctx, func(ctx context.Context, term *election.Term) error {
					defer cancel()
					time.Sleep(100 * time.Millisecond)
					_, err := election.Ask(ctx, term.Lock().Session(), func(*db.Queries, context.Context, any) (any, error) { return nil, c.refused }, nil)
					if !errors.Is(err, c.want) || (ctx.Err() != nil) != c.lost || c.lost && !errors.Is(context.Cause(ctx), pgerr.ErrSessionLost) {
						t.Error(err, context.Cause(ctx))
					}
					return nil
				})
				if c.lost {
					canceled(t, err)
				}
			})
		})
	}
}

// The server grants a session a lock that the session holds once more. A second Lock of one key would let two terms begin.
func TestASessionTriesNoLockThatItHolds(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		if err := plain(pool, "a").Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			s := term.Lock().Session()
			if locks, _, err := s.Try(ctx, election.Want{Key: 42}); err == nil || locks != nil || !term.Valid() {
				t.Error(locks, err, context.Cause(ctx))
			}
			locks, _, err := s.Try(ctx, election.Want{Key: 43})
			if err != nil || locks[0] == nil {
				t.Fatal(locks, err)
			}
			election.GiveUp(locks[0])
			if locks, _, err = s.Try(ctx, election.Want{Key: 43}); err != nil || locks[0] == nil {
				t.Error("a lock that was given up cannot be tried again:", locks, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}
