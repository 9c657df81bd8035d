package election_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// What an answerer breaks if it lies, and what the kernel judges of its answers.

// answers are the answers of session scope, some of which a test replaces.
type answers struct {
	election.Direct
	open     func() (election.Answer, error)
	try      func([]election.Tried, election.Answer, error) ([]election.Tried, election.Answer, error)
	confirm  func([]election.Confirmed, election.Answer, error) ([]election.Confirmed, election.Answer, error)
	beat     func() error
	beats    func(context.Context, *pin.Conn) (bool, election.Answer, error)
	holds    func(context.Context, *pin.Conn) (bool, election.Answer, error)
	unlock   func([]int64) ([]int64, error)
	aside    func(ask func() error) (refused, err error)
	afterTry func(context.Context, *pin.Conn, int64)
}

func (a answers) Open(context.Context, *pin.Conn, []election.Setting) (election.Answer, error) {
	if a.open != nil {
		return a.open()
	}
	return election.Answer{}, nil
}

func (a answers) Try(ctx context.Context, c *pin.Conn, s []election.Setting, w []election.Want) ([]election.Tried, election.Answer, error) {
	tried, from, err := a.Direct.Try(ctx, c, s, w)
	if a.afterTry != nil {
		a.afterTry(ctx, c, w[0].Key)
	}
	if a.try != nil {
		return a.try(tried, from, err)
	}
	return tried, from, err
}

func (a answers) Confirm(ctx context.Context, c *pin.Conn, keys []int64) ([]election.Confirmed, election.Answer, error) {
	rows, from, err := a.Direct.Confirm(ctx, c, keys)
	if a.confirm != nil {
		return a.confirm(rows, from, err)
	}
	return rows, from, err
}

func (a answers) Beat(ctx context.Context, c *pin.Conn) (bool, election.Answer, error) {
	if a.beats != nil {
		return a.beats(ctx, c)
	}
	if a.beat != nil {
		if err := a.beat(); err != nil {
			return false, election.Answer{}, err
		}
	}
	return a.Direct.Beat(ctx, c)
}

func (a answers) Holds(ctx context.Context, c *pin.Conn, key int64) (bool, election.Answer, error) {
	if a.holds != nil {
		return a.holds(ctx, c)
	}
	return a.Direct.Holds(ctx, c, key)
}

func (a answers) Aside(ctx context.Context, c *pin.Conn, ask func() error) (refused, err error) {
	if a.aside != nil {
		return a.aside(ask)
	}
	return a.Direct.Aside(ctx, c, ask)
}

func (a answers) Unlock(ctx context.Context, c *pin.Conn, keys []int64) ([]int64, error) {
	if a.unlock != nil {
		return a.unlock(keys)
	}
	return a.Direct.Unlock(ctx, c, keys)
}

// What each lie breaks.
const (
	nothing = "nothing: the kernel does not believe it"
	itself  = "the liar is not elected"
	twoLead = "two lead"
	falls   = "tokens do not rise"
	theLock = "the lock stays held, and nobody leads"
)

var lies = []struct {
	name   string
	lie    answers
	breaks string
}{
	{"Open names another backend", answers{open: func() (election.Answer, error) { return election.Answer{PID: 1}, nil }}, itself},
	{"Try grants a busy lock", answers{try: granted}, nothing},
	{"Try answers for no lock", answers{try: func(_ []election.Tried, a election.Answer, err error) ([]election.Tried, election.Answer, error) {
		return nil, a, err
	}}, itself},
	{"Try finds every lock busy", answers{try: func(t []election.Tried, a election.Answer, err error) ([]election.Tried, election.Answer, error) {
		return make([]election.Tried, len(t)), a, err
	}}, theLock},
	{"Confirm answers for no lock", answers{confirm: func(_ []election.Confirmed, a election.Answer, err error) ([]election.Confirmed, election.Answer, error) {
		return nil, a, err
	}}, itself},
	{"Confirm names another backend", answers{confirm: func(c []election.Confirmed, a election.Answer, err error) ([]election.Confirmed, election.Answer, error) {
		a.PID++
		return c, a, err
	}}, itself},
	{"Try and Confirm grant a busy lock", answers{try: granted, confirm: held}, twoLead},
	{"Confirm makes a token of its own", answers{confirm: func(c []election.Confirmed, a election.Answer, err error) ([]election.Confirmed, election.Answer, error) {
		for i := range c {
			c[i].Token = 1<<48 | 1
		}
		return c, a, err
	}}, falls},
	{"Beat names another backend", answers{beats: func(context.Context, *pin.Conn) (bool, election.Answer, error) {
		return false, election.Answer{PID: 1}, nil
	}}, itself},
	{"Beat names nobody", answers{beats: func(context.Context, *pin.Conn) (bool, election.Answer, error) { return false, election.Answer{}, nil }}, itself},
	{"Aside asks nothing", answers{aside: func(func() error) (refused, err error) { return nil, nil }}, nothing},
	{"Aside asks twice", answers{aside: func(ask func() error) (refused, err error) { return ask(), ask() }}, nothing},
	{"Aside says that nothing was refused", answers{aside: func(ask func() error) (refused, err error) { _ = ask(); return nil, nil }}, nothing},
	{"Aside says that all was refused", answers{aside: func(ask func() error) (refused, err error) { return state("42501"), ask() }}, itself}, // by its part
	{"Aside says that the session is lost", answers{aside: func(func() error) (refused, err error) { return nil, pgerr.ErrSessionLost }}, itself},
	{"Holds says that every lock is held", answers{holds: func(context.Context, *pin.Conn) (bool, election.Answer, error) { return true, election.Answer{}, nil }}, nothing},
	{"Unlock releases nothing, and says so", answers{unlock: func([]int64) ([]int64, error) { return nil, nil }}, nothing},
	{"Unlock releases nothing, and says that it does", answers{unlock: func(keys []int64) ([]int64, error) { return keys, nil }}, nothing}, // the session of one lock is closed
}

func granted(t []election.Tried, a election.Answer, err error) ([]election.Tried, election.Answer, error) {
	for i := range t {
		t[i] = election.Tried{Granted: true}
	}
	return t, a, err
}

func held(c []election.Confirmed, a election.Answer, err error) ([]election.Confirmed, election.Answer, error) {
	for i := range c {
		c[i] = election.Confirmed{Held: true, Passed: true, Token: 1<<48 | 1<<20, Epoch: "0"}
	}
	return c, a, err
}

// A liar and an honest candidate take turns: each leads for 10 s if it can, and steps down.
func TestWhatEachLieOfAnAnswererBreaks(t *testing.T) {
	for _, c := range lies {
		t.Run(c.name, func(t *testing.T) {
			onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
				own := server.Open()
				defer own.Close()
				from := sessions("liar")
				from.Statements = func(*election.Source) election.Statements { return c.lie }
				from.Parts = []election.Part{asker{}}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				w := &watch{leads: map[string]int64{}}
				led := map[string]int{}
				var mu sync.Mutex
				turn := func(id string) func(context.Context, *election.Term) error {
					return func(ctx context.Context, term *election.Term) error {
						mu.Lock()
						led[id]++
						mu.Unlock()
						ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
						defer cancel()
						return w.lead(id)(ctx, term)
					}
				}
				var all sync.WaitGroup
				for id, e := range map[string]*election.Election{"honest": plain(pool, "honest"), "liar": election.New(election.NewSource(own, from), config(42))} {
					all.Go(func() {
						for ctx.Err() == nil {
							_ = e.Run(ctx, turn(id))
							time.Sleep(3 * time.Second)
						}
					})
				}
				all.Wait()
				got := nothing
				switch {
				case has(w.faults, "leads beside"):
					got = twoLead
				case has(w.faults, "token"):
					got = falls
				case led["liar"] == 0 && led["honest"] < 2:
					got = theLock
				case led["liar"] == 0 || c.breaks == itself && len(w.faults) == 0:
					got = itself
				}
				if got != c.breaks || got == nothing && (led["liar"] < 2 || led["honest"] < 2) {
					t.Errorf("breaks %q, want %q; led %v, faults %v", got, c.breaks, led, w.faults)
				}
			})
		})
	}
}

// An asker asks before each term and after each heartbeat, and lets nobody lead if it hears nothing.
type asker struct{ election.NoPart }

func (asker) Granted(ctx context.Context, s *election.Session, _ election.Grant) error {
	_, err := election.Do(ctx, s, (*db.Queries).ServerStart)
	return err
}

func (a asker) Beat(s *election.Session, _ election.Beat) error {
	return a.Granted(s.Context(), s, election.Grant{})
}

func has(faults []string, what string) bool {
	for _, f := range faults {
		if strings.Contains(f, what) {
			return true
		}
	}
	return false
}

// A heartbeat that another backend has answered, another transaction, or a standby, proves nothing, and ends the session.
func TestAnAnswerFromElsewhereEndsTheSession(t *testing.T) {
	self := election.Answer{PID: 1}
	inScope := election.Answer{PID: 1, Mark: "x"}
	for name, c := range map[string]struct {
		first, then election.Answer
		want        error
	}{
		"itself":               {self, self, nil},
		"itself, in scope":     {inScope, inScope, nil},
		"another backend":      {self, election.Answer{PID: 2}, pgerr.ErrSessionPooled},
		"another transaction":  {inScope, election.Answer{PID: 1, Mark: "y"}, pgerr.ErrSessionLost},
		"no transaction":       {inScope, self, pgerr.ErrSessionLost},
		"a server in recovery": {self, election.Answer{PID: 1, InRecovery: true}, pgerr.ErrServerReadOnly},
		"nobody":               {self, election.Answer{}, pgerr.ErrSessionLost},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
				from := sessions("a")
				from.Statements = func(*election.Source) election.Statements {
					return answers{
						try: func(t []election.Tried, _ election.Answer, err error) ([]election.Tried, election.Answer, error) {
							return t, c.first, err
						},
						confirm: func(r []election.Confirmed, _ election.Answer, err error) ([]election.Confirmed, election.Answer, error) {
							return r, c.first, err
						},
						beats: func(context.Context, *pin.Conn) (bool, election.Answer, error) { return false, c.then, nil },
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				_ = election.New(election.NewSource(pool, from), config(42)).Run(ctx, func(ctx context.Context, term *election.Term) error {
					defer cancel()
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Second):
					}
					cause := context.Cause(ctx)
					if !errors.Is(cause, c.want) || c.want != nil && !errors.Is(cause, pgerr.ErrSessionLost) {
						t.Error(cause)
					}
					return nil
				})
			})
		})
	}
}

// An answer that comes after ctx ended may still end the session.
func TestALateAnswerOfVerifyEndsTheTerm(t *testing.T) {
	for _, held := range []bool{true, false} {
		onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
			from := sessions("a")
			from.Statements = func(*election.Source) election.Statements {
				return answers{holds: func(ctx context.Context, c *pin.Conn) (bool, election.Answer, error) {
					time.Sleep(time.Second)
					_, a, err := election.Direct{}.Holds(ctx, c, 42)
					return held, a, err
				}}
			}
			all, stop := context.WithCancel(t.Context())
			_ = election.New(election.NewSource(pool, from), config(42)).Run(all, func(ctx context.Context, term *election.Term) error {
				defer stop()
				short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				defer cancel()
				if err := term.Verify(short); !errors.Is(err, context.DeadlineExceeded) || !term.Valid() {
					t.Error(err)
				}
				time.Sleep(2 * time.Second)
				if term.Valid() != held {
					t.Error(held, context.Cause(ctx))
				}
				return errors.New("enough")
			})
		})
	}
}

// A lock that is granted and does not show, on a server whose locks do show, was released by other code: that is no reason to
// refuse the server.
func TestALockThatIsGrantedAndGoneIsNoRefusal(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from, tries := sessions("a"), 0
		from.Statements = func(*election.Source) election.Statements {
			return answers{afterTry: func(ctx context.Context, c *pin.Conn, key int64) {
				if tries++; tries == 1 {
					_, _ = c.Queries().Unlock(ctx, key)
				}
			}}
		}
		if err := election.New(election.NewSource(pool, from), config(42)).Run(t.Context(), func(context.Context, *election.Term) error { return nil }); err != nil || tries != 2 {
			t.Error(tries, err)
		}
	})
}

// An answer counts from before its question was sent.
func TestAnAnswerCountsFromBeforeItsQuestion(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from, part := sessions("a"), deadlines{left: make(chan time.Duration, 9)}
		from.Parts = []election.Part{part}
		from.Statements = func(*election.Source) election.Statements {
			return answers{beat: func() error { time.Sleep(3 * time.Second); return nil }}
		}
		if err := election.New(election.NewSource(pool, from), config(42)).Run(t.Context(), func(context.Context, *election.Term) error {
			if left := <-part.left; left != 4*time.Second { // of 7
				t.Error(left)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // the next heartbeat was under way
	})
}

type deadlines struct {
	election.NoPart
	left chan time.Duration
}

func (d deadlines) Beat(_ *election.Session, b election.Beat) error {
	d.left <- time.Until(b.Deadline)
	return nil
}

// An answer that is read when its validity has run out, as by a process that stood still, elects nobody.
func TestAnAnswerThatIsReadTooLateElectsNobody(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, process *electortest.Process, pool *sql.DB) {
		from, tries := sessions("a"), 0
		from.Statements = func(*election.Source) election.Statements {
			return answers{confirm: func(r []election.Confirmed, a election.Answer, err error) ([]election.Confirmed, election.Answer, error) {
				if tries++; tries == 1 {
					process.ShiftClock(time.Minute) // the machine slept, after the server has answered
				}
				return r, a, err
			}}
		}
		if err := election.New(election.NewSource(pool, from), config(42)).Run(t.Context(), func(context.Context, *election.Term) error { return nil }); err != nil || tries != 2 {
			t.Error(tries, err)
		}
	})
}

// A full lock table says nothing about the session: the heartbeat asks by a statement that takes no lock.
func TestAFullLockTableEndsNoTerm(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		if err := plain(pool, "a").Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			server.LimitLocks(len(server.Locks()))
			time.Sleep(time.Minute)
			if ctx.Err() != nil {
				t.Error(context.Cause(ctx))
			}
			server.LimitLocks(0)
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// A confirmation that the server cancels leaves a session of many locks alone, and gives back the lock that it was about.
func TestACancelledConfirmationCostsNoOtherLock(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from, cancels := sessions("a"), false
		from.Statements = func(*election.Source) election.Statements {
			return answers{confirm: func(r []election.Confirmed, a election.Answer, err error) ([]election.Confirmed, election.Answer, error) {
				if cancels {
					return nil, election.Answer{}, state("57014")
				}
				return r, a, err
			}}
		}
		if err := election.New(election.NewSource(pool, from), config(42)).Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			s := term.Lock().Session()
			locks, _, err := s.Try(ctx, election.Want{Key: 43})
			if err != nil {
				t.Fatal(err)
			}
			cancels = true
			refused, err := s.Confirm(ctx, locks[0])
			if err != nil || !errors.Is(refused[locks[0]], election.ErrAtBarrier) || !term.Valid() {
				t.Error(refused, err, context.Cause(ctx))
			}
			election.GiveUp(locks[0])
			synctest.Wait()
			if !term.Valid() {
				t.Error(context.Cause(ctx))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// A fenced transaction of an earlier term keeps a candidate waiting at the barrier, and the error says where it waited.
func TestAnErrorSaysThatACandidateWaitedAtTheBarrier(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		other := server.Open()
		defer other.Close()
		tx, err := other.Begin()
		if err != nil {
			t.Fatal(err)
		}
		high, low := lockkey.Halves(42)
		if held, err := db.New(tx).TryPair(t.Context(), db.TryPairParams{Inside: true, High: high, Low: low}); err != nil || !held {
			t.Fatal(held, err)
		}
		c := config(42)
		r := &recorder{}
		c.Observer = r
		time.AfterFunc(20*time.Second, func() { _ = tx.Commit() })
		if err := election.New(election.NewSource(pool, sessions("a")), c).Run(t.Context(), func(context.Context, *election.Term) error { return nil }); err != nil {
			t.Error(err)
		}
		if len(r.attempts) < 2 || !errors.Is(r.attempts[0].Err, election.ErrAtBarrier) || !errors.Is(r.attempts[0].Err, pgerr.ErrNoAnswer) {
			t.Error(r.attempts)
		}
	})
}

// valued records which values the calls carry.
type valued struct {
	election.Direct
	tried, beaten *string
}

func (v valued) Try(ctx context.Context, c *pin.Conn, s []election.Setting, w []election.Want) ([]election.Tried, election.Answer, error) {
	*v.tried, _ = ctx.Value(key{}).(string)
	return election.Direct{}.Try(ctx, c, s, w)
}

func (v valued) Beat(ctx context.Context, c *pin.Conn) (bool, election.Answer, error) {
	*v.beaten, _ = ctx.Value(key{}).(string)
	return election.Direct{}.Beat(ctx, c)
}
