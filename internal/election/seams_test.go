package election_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// When the kernel calls parts, acquirers and observers, and with what.

// An ender keeps something of each session, and hears of its end.
type ender struct {
	election.NoPart
	pool  *sql.DB
	kept  election.PerSession[string]
	ended []string // what was kept of each session that has ended
	why   error    // of the last one
	inUse int      // connections, when the last one ended
}

func (e *ender) Lent(_ context.Context, s *election.Session) error {
	*e.kept.Of(s) = "lent"
	return nil
}

func (e *ender) Started(s *election.Session) { *e.kept.Of(s) += ", started" }

func (e *ender) Ended(s *election.Session, cause error) {
	e.ended, e.why, e.inUse = append(e.ended, *e.kept.Of(s)), cause, e.pool.Stats().InUse
}

func TestAPartHearsOnceOfTheEndOfEachSession(t *testing.T) {
	errNo := errors.New("no")
	lend := func(e *election.Election, end func(*election.Session)) {
		if s, err := e.Source().Lend(context.Background()); err == nil {
			end(s)
			end(s)
		}
	}
	led := func(e *election.Election, end func(*election.Session)) {
		s := e.Attempt(context.Background()).Lock.Session()
		time.Sleep(time.Second)
		end(s)
		<-s.Context().Done()
		s.Close()
		s.Close()
	}
	for name, c := range map[string]struct {
		session func(e *election.Election, server *electortest.Server)
		ended   string
		why     error
	}{
		"given back": {func(e *election.Election, _ *electortest.Server) { lend(e, (*election.Session).GiveBack) }, "lent", nil},
		"failed": {func(e *election.Election, _ *electortest.Server) {
			lend(e, func(s *election.Session) { s.Fail(errNo) })
		}, "lent", errNo},
		"closed": {func(e *election.Election, _ *electortest.Server) { led(e, (*election.Session).Close) }, "lent, started", nil},
		"lost": {func(e *election.Election, server *electortest.Server) {
			led(e, func(s *election.Session) { server.Terminate(s.PID()) })
		}, "lent, started", pgerr.ErrSessionLost},
		"lost to a part": {func(e *election.Election, _ *electortest.Server) {
			led(e, func(s *election.Session) { _ = s.Lose(errNo) })
		}, "lent, started", errNo},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
				from, part := sessions("a"), &ender{pool: pool}
				from.Parts = []election.Part{part}
				c.session(election.New(election.NewSource(pool, from), config(42)), server)
				if !slices.Equal(part.ended, []string{c.ended}) || c.why != nil && !errors.Is(part.why, c.why) || part.why == nil || part.inUse != 1 {
					t.Errorf("ended %q by %v, with %d connections in use", part.ended, part.why, part.inUse)
				}
				if n := pool.Stats().InUse; n != 0 {
					t.Errorf("%d connections are in use", n)
				}
			})
		})
	}
}

// A teller says what it hears, and how many locks are held then.
type teller struct {
	mu     sync.Mutex // the work tells, too
	server *electortest.Server
	heard  []string
}

func (o *teller) tell(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heard = append(o.heard, fmt.Sprint(what, " ", len(o.server.Locks())))
}

func (o *teller) Attempted(a election.Attempt) {
	o.tell([]string{"failed", "refused", "busy", "granted"}[a.Outcome])
}
func (o *teller) Elected(*election.Term)        { o.tell("elected") }
func (o *teller) Ended(*election.Term, error)   { o.tell("ended") }
func (o *teller) Demoted(*election.Term, error) { o.tell("demoted") }
func (o *teller) Released(*election.Term)       { o.tell("released") }
func (o *teller) Failed(string, error)          { o.tell("failed") }

// The end of a term is told while its work goes on, its demotion when the work has returned and the lock is held still, its
// release when the lock is free, and all of it before the next attempt.
func TestAnObserverHearsOfATermInOrder(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		c, o := config(42), &teller{server: server}
		c.Observer, c.Terms = o, &election.Terms{}
		ctx, cancel := context.WithCancel(t.Context())
		terms := 0
		_ = election.New(election.NewSource(pool, sessions("a")), c).Run(ctx, func(ctx context.Context, _ *election.Term) error {
			o.tell("leads")
			if terms++; terms == 2 {
				cancel()
			} else {
				time.AfterFunc(time.Second, func() { c.Terms.End("a whim", errors.New("enough")) })
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			o.tell("returns")
			return nil
		})
		term := []string{"granted 1", "elected 1", "leads 1", "ended 1", "returns 1", "demoted 1", "released 0"}
		if want := slices.Concat(term, term); !slices.Equal(o.heard, want) {
			t.Errorf("heard\n%q, want\n%q", o.heard, want)
		}
	})
}

func TestABusyAttemptSaysSinceWhenTheLockWasFoundBusy(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, process *electortest.Process, pool *sql.DB) {
		leader := plain(server.Open(), "leader")
		defer leader.Source().Pool().Close()
		term, err := leader.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		process.SetLatency(func() time.Duration { return 500 * time.Millisecond })
		c := config(42)
		c.Look = func() bool { return true }
		e, began := election.New(election.NewSource(pool, sessions("a")), c), time.Now()
		if a := e.Attempt(t.Context()); a.Outcome != election.Busy || a.Holder.CandidateID != "leader" || a.BusyAt.Before(began) || time.Since(a.BusyAt) < time.Second {
			t.Errorf("after %v: %+v", time.Since(began), a)
		}
		server.Stop()
		if a := e.Attempt(t.Context()); a.Outcome != election.Failed || !a.BusyAt.IsZero() {
			t.Errorf("got %+v", a)
		}
		_ = term.Resign(t.Context())
	})
}

// An answerer that waits in the server's queue does not know whether it was granted the lock. Only the confirmation tells.
func TestALockThatWasPerhapsGrantedElectsOnlyIfItIsHeld(t *testing.T) {
	for _, held := range []bool{true, false} {
		onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
			other := plain(server.Open(), "other")
			defer other.Source().Pool().Close()
			if !held {
				term, err := other.Campaign(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = term.Resign(t.Context()) }()
			}
			from := sessions("a")
			from.Statements = func(*election.Source) election.Statements {
				return answers{
					try: func(t []election.Tried, a election.Answer, err error) ([]election.Tried, election.Answer, error) {
						return []election.Tried{{Perhaps: true}}, a, err
					},
					confirm: func(r []election.Confirmed, a election.Answer, err error) ([]election.Confirmed, election.Answer, error) {
						r[0].Err = nil // it was no lock that has gone
						return r, a, err
					},
				}
			}
			e := election.New(election.NewSource(pool, from), config(42))
			a := e.Attempt(t.Context())
			if held {
				if a.Outcome != election.Granted || a.Kept != nil {
					t.Fatalf("got %+v", a)
				}
				a.Lock.Session().Close()
				return
			}
			if a.Outcome != election.Busy || a.Lock != nil || a.Kept == nil || a.BusyAt.IsZero() {
				t.Fatalf("got %+v", a)
			}
			if again := e.Again(t.Context(), a.Kept); again.Outcome != election.Busy || again.Kept != a.Kept { // so it may be tried again
				t.Errorf("got %+v", again)
			}
			a.Kept.Fail(errors.New("enough"))
			if term, err := e.TryCampaign(t.Context()); term != nil || err != nil {
				t.Error(term, err)
			}
			if n := pool.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use: nobody keeps the session", n)
			}
		})
	}
}

// A pause leaves the terms that go on alone, and ends the attempts.
func TestAPauseLetsTermsGoOn(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, process *electortest.Process, pool *sql.DB) {
		room, ctx := &election.Terms{}, t.Context()
		c, r := config(42), &recorder{}
		c.Terms, c.Observer = room, r
		meanwhile := 0
		c.Meanwhile = func(context.Context) { meanwhile++ }
		e := election.New(election.NewSource(pool, sessions("a")), c)
		term, err := e.Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		errPaused := errors.New("paused")
		room.Pause("paused", errPaused)
		if time.Sleep(time.Minute); !term.Valid() {
			t.Error("the term has ended:", context.Cause(term.Context()))
		}
		if err := term.Resign(ctx); err != nil {
			t.Error(err)
		}
		if term, err := e.TryCampaign(ctx); term != nil || !errors.Is(err, errPaused) || election.ReasonOf(err) != "paused" {
			t.Error(term, err)
		}
		elected := make(chan *election.Term)
		go func() {
			term, err := e.Campaign(ctx)
			if err != nil {
				t.Error(err)
			}
			elected <- term
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(r.attempts); n != 1 || meanwhile < 60 || meanwhile > 81 { // once per retry interval of 0.75 to 1 s
			t.Errorf("%d attempts, and %d times meanwhile", n, meanwhile)
		}
		process.SetLatency(func() time.Duration { return time.Second })
		room.Allow("paused")
		time.Sleep(1500 * time.Millisecond)
		room.Pause("paused", errPaused) // while an attempt goes on
		time.Sleep(time.Minute)
		if len(elected) > 0 || len(server.Locks()) != 0 {
			t.Error("an attempt went on")
		}
		room.Allow("paused")
		term = <-elected
		if n := r.failed; n != 0 {
			t.Errorf("%d attempts have failed", n)
		}
		if err := term.Resign(ctx); err != nil {
			t.Error(err)
		}
	})
}

// An otherWay is an error after which another attempt goes another way.
type otherWay struct{ error }

func (otherWay) Again() {}

func TestAnErrorThatSaysSoIsFollowedByOneAttemptAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		says  int // how often
		tries int
		want  election.Outcome
	}{"once": {1, 2, election.Granted}, "for ever": {1000, 2, election.Failed}} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
				tries := 0
				from := sessions("a")
				from.Statements = func(*election.Source) election.Statements {
					return answers{open: func() (election.Answer, error) {
						if tries++; tries <= c.says {
							return election.Answer{}, otherWay{errors.New("the other way")}
						}
						return election.Answer{}, nil
					}}
				}
				a := election.New(election.NewSource(pool, from), config(42)).Attempt(t.Context())
				if a.Outcome != c.want || tries != c.tries {
					t.Errorf("after %d tries: %+v", tries, a)
				}
				if a.Lock != nil {
					a.Lock.Session().Close()
				}
			})
		})
	}
}

// A session that was moved to another backend says from where, and to where.
func TestASessionThatWasMovedSaysSo(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from, part := sessions("a"), &ender{pool: pool}
		from.Parts = []election.Part{part}
		from.Statements = func(*election.Source) election.Statements {
			return answers{beats: func(context.Context, *pin.Conn) (bool, election.Answer, error) {
				return false, election.Answer{PID: 7}, nil
			}}
		}
		l := election.New(election.NewSource(pool, from), config(42)).Attempt(t.Context()).Lock
		<-l.Session().Context().Done()
		l.Session().Close()
		moved, ok := errors.AsType[*election.Moved](part.why)
		if !ok || moved.From != l.Session().PID() || moved.To != 7 || !errors.Is(part.why, pgerr.ErrSessionPooled) || !strings.Contains(moved.Error(), "7") {
			t.Errorf("ended by %v", part.why)
		}
	})
}

// Locks that nobody leads with leave in as few statements as the answerer needs, and leave the lock of a term alone.
func TestSeveralLocksAreGivenUpTogether(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		var unlocked [][]int64
		from := sessions("a")
		from.Statements = func(*election.Source) election.Statements {
			return answers{unlock: func(keys []int64) ([]int64, error) {
				unlocked = append(unlocked, keys)
				return keys, nil
			}}
		}
		if err := election.New(election.NewSource(pool, from), config(42)).Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			s := term.Lock().Session()
			locks := []*election.Lock{term.Lock(), nil}
			for key := range int64(3) {
				got, _, err := s.Try(ctx, election.Want{Key: key})
				if err != nil || got[0] == nil {
					t.Fatal(err)
				}
				locks = append(locks, got[0])
			}
			if _, err := s.Confirm(ctx, locks[4]); err != nil { // confirmed, and nobody leads with it
				t.Error(err)
			}
			election.GiveUp(locks...)
			election.GiveUp(locks...)
			if !term.Valid() || !slices.EqualFunc(unlocked, [][]int64{{0, 1, 2}}, slices.Equal) {
				t.Errorf("released %v; the term has ended by %v", unlocked, context.Cause(term.Context()))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(unlocked) != 2 || !slices.Equal(unlocked[1], []int64{42}) {
			t.Errorf("released %v", unlocked)
		}
	})
}

// If the answerer says that one lock was not held, the session is lost, and the locks with it.
func TestALockThatWasNotHeldWhenItWasGivenUpEndsTheSession(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from := sessions("a")
		from.Statements = func(*election.Source) election.Statements {
			return answers{unlock: func(keys []int64) ([]int64, error) { return keys[1:], nil }}
		}
		ctx, cancel := context.WithCancel(t.Context())
		canceled(t, election.New(election.NewSource(pool, from), config(42)).Run(ctx, func(ctx context.Context, term *election.Term) error {
			defer cancel()
			got, _, err := term.Lock().Session().Try(ctx, election.Want{Key: 43})
			if err != nil {
				t.Fatal(err)
			}
			failed := election.GiveUp(got[0])
			if term.Valid() || !errors.Is(context.Cause(ctx), pgerr.ErrSessionLost) || !errors.Is(failed, pgerr.ErrSessionLost) {
				t.Errorf("the term has ended by %v; %v", context.Cause(ctx), failed)
			}
			return nil
		}))
	})
}
