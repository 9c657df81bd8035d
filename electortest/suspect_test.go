package electortest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// The server goes away between two heartbeats, 30 s apart, and a statement on another
// connection fails.

var longLease = elector.WithLease(150 * time.Second)

// transaction returns work with a transaction, during one part of which the server crashes.
func transaction(part string, crash func()) func(ctx context.Context, term *elector.Term, pool *sql.DB) error {
	return func(ctx context.Context, term *elector.Term, pool *sql.DB) error {
		if part == "BEGIN" {
			crash()
		}
		return term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
			if part == "a statement" {
				crash()
			}
			if _, err := tx.Exec("write"); err != nil {
				return err
			}
			if part == "COMMIT" {
				crash()
			}
			return nil
		})
	}
}

func TestAFailedStatementOnADeadServerEndsTheTermAtOnce(t *testing.T) {
	for name, ask := range map[string]func(b *bench, s *candidate, term *elector.Term) error{
		"InTx, BEGIN": func(b *bench, s *candidate, term *elector.Term) error {
			return transaction("BEGIN", b.Crash)(b.Context(), term, s.pool)
		},
		"InTx, a statement": func(b *bench, s *candidate, term *elector.Term) error {
			return transaction("a statement", b.Crash)(b.Context(), term, s.pool)
		},
		"InTx, COMMIT": func(b *bench, s *candidate, term *elector.Term) error {
			return transaction("COMMIT", b.Crash)(b.Context(), term, s.pool)
		},
		"InTx on another pool": func(b *bench, s *candidate, term *elector.Term) error {
			other := s.process.Open()
			defer other.Close()
			return transaction("BEGIN", b.Crash)(b.Context(), term, other)
		},
		"Leader": func(b *bench, s *candidate, _ *elector.Term) error {
			b.Crash()
			_, err := s.Leader(b.Context())
			return err
		},
		"Candidates": func(b *bench, s *candidate, _ *elector.Term) error {
			b.Crash()
			_, err := s.Candidates(b.Context())
			return err
		},
		"an attempt in another election": func(b *bench, s *candidate, _ *elector.Term) error {
			other, err := elector.New(s.pool, "invoices")
			b.wraps(err)
			b.Crash()
			_, _, err = other.TryCampaign(b.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.Handle(func(electortest.Statement) (electortest.Answer, error) { return electortest.Answer{}, nil })
				s := b.candidate("one", longLease)
				term, err := s.Campaign(b.Context())
				b.wraps(err)
				time.Sleep(5 * time.Second)
				if err := ask(b, s, term); err == nil {
					b.Error("no error of a server that has crashed")
				}
				met := time.Now()
				<-term.Context().Done()
				b.within("the term ends", 0, time.Since(met), 10*time.Millisecond)
				b.wraps(context.Cause(term.Context()), elector.ErrSessionLost)
				_ = term.Resign(context.Background())
			})
		})
	}
}

// The session lives: many errors cost it at most four heartbeats a second.
func TestAnErrorOnAnotherConnectionCostsOnlyAHeartbeat(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.candidate("one", longLease)
		term, err := s.Campaign(b.Context())
		b.wraps(err)
		elsewhere := b.NewStandby(0)
		elsewhere.Stop()
		lost := elsewhere.Open()
		defer lost.Close()
		before := len(s.rec.Heartbeats())
		for range 1000 {
			b.wraps(term.InTx(b.Context(), lost, nil, func(*sql.Tx) error { return nil }), elector.ErrRolledBack)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(s.rec.Heartbeats()) - before; n < 38 || n > 41 {
			b.Errorf("%d heartbeats in 10 s", n)
		}
		if !term.Valid() {
			b.Errorf("the term has ended: %v", context.Cause(term.Context()))
		}
		b.wraps(term.Resign(b.Context()))
	})
}
