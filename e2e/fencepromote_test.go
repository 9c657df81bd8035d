//go:build unix

package e2e_test

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
)

// A standby is promoted while the old primary still answers: two servers, two
// leaders, and neither can know of the other. The token's timeline tells them
// apart, wherever a third store is written to.
func TestThePromotionOfAStandbyBesideItsPrimaryIsFencedByTheToken(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		primary := own(t)
		standby, err := primary.AddStandby(t.Context())
		check(t, err)
		p, s := on(t, primary), on(t, standby)
		store := onShared(t)
		_, err = store.admin.Exec("SELECT pg_advisory_xact_lock(4711); " + fence.CreateTable)
		check(t, err)

		election := p.election(t)
		var address atomic.Pointer[string] // of the cluster, as its clients know it
		move := func(to *server) { dsn := to.DSN(); address.Store(&dsn) }
		move(p)
		moving := d.openMoving(t, 0, &address)
		_, old := p.lead(t, d.open(t, 0, p.DSN()), election)
		check(t, old.InTx(soon(t), moving, nil, func(*sql.Tx) error { return nil }))

		check(t, standby.Promote(soon(t)))
		move(s)
		_, fresh := s.lead(t, d.open(t, 1, s.DSN()), election)
		if !old.Valid() || old.Verify(soon(t)) != nil {
			t.Error("the old primary no longer answers")
		}
		if fresh.Token()>>48 <= old.Token()>>48 {
			t.Errorf("token %x is not of a later timeline than %x", fresh.Token(), old.Token())
		}
		// Both write, with and without a fence, the old one first.
		for _, how := range []way{unfenced, byToken} {
			register, err := makeRegister(store.admin)
			check(t, err)
			history := &record{}
			first := &openWriter{record: history, id: "old", register: register, how: how, term: old, store: d.open(t, 0, store.DSN())}
			first.write(t, 3)
			second := &openWriter{record: history, id: "new", register: register, how: how, term: fresh, store: d.open(t, 1, store.DSN())}
			second.write(t, 1)
			var both sync.WaitGroup
			both.Go(func() { first.write(t, 20) })
			both.Go(func() { second.write(t, 20) })
			both.Wait()
			want := porcupine.Ok
			if how == unfenced {
				want = porcupine.Illegal
			}
			if got := linearizable(history.deeds); got != want {
				t.Errorf("%s: linearizable: %s, want %s", how, got, want)
			}
			if last := history.of("old"); (last.Outcome == ok) != (how == unfenced) {
				t.Errorf("%s: the old leader's last write was %s (%s)", how, last.Outcome, last.Text)
			}
		}
		// Through the address that has moved, the old term is not one of that server.
		eventually(t, "the pool has reached the promoted server", func() bool {
			err := old.InTx(soon(t), moving, nil, func(tx *sql.Tx) error {
				if one[string](t, tx, "SELECT current_setting('port')") != fmt.Sprint(primary.Port()) {
					t.Error("a transaction of the old term has entered on the promoted server")
				}
				return nil
			})
			moving.SetMaxIdleConns(0) // the next transaction connects anew
			return errors.Is(err, elector.ErrNotLeader)
		})
	})
}

// record is a history that several writers add to.
type record struct {
	mu    sync.Mutex
	deeds []deed
}

func (r *record) add(d deed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deeds = append(r.deeds, d)
}

func (r *record) of(id string) (last deed) {
	for _, d := range r.deeds {
		if d.ID == id {
			last = d
		}
	}
	return last
}

// openWriter is a writer within this process.
type openWriter struct {
	*record
	id, register, value string
	how                 way
	term                *elector.Term
	store               *sql.DB
	read                bool
	n                   int
}

// write writes up to n times, and stops when it is refused.
func (o *openWriter) write(t *testing.T, n int) {
	w := &writer{writerSettings: writerSettings{Way: o.how, Register: o.register}, store: o.store}
	for range n {
		call := monotonic()
		d := deed{ID: o.id, Kind: hasRead, Token: o.term.Token(), Call: call}
		var err error
		if !o.read {
			d.Outcome, err = w.do(o.term, func(tx execer) error {
				return tx.QueryRowContext(t.Context(), "SELECT value FROM "+o.register).Scan(&d.New)
			})
		} else {
			o.n++
			d.Kind, d.Old, d.New = hasWritten, o.value, fmt.Sprint(o.id, "-", o.n)
			d.Outcome, err = w.do(o.term, func(tx execer) error {
				_, err := tx.ExecContext(t.Context(), "UPDATE "+o.register+" SET value = $1", d.New)
				return err
			})
		}
		d.Return = monotonic()
		if err != nil {
			d.Text = err.Error()
		}
		if d.Outcome == ok {
			o.value, o.read = d.New, true
		}
		if d.Outcome == ok || d.Kind == hasWritten {
			o.add(d)
		}
		if d.Outcome != ok {
			return
		}
	}
}
