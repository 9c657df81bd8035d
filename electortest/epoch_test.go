package electortest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pgelector/pgelector/elector"
)

// Tokens fall where a promoted server is upgraded, until the epoch is raised.
func TestAnUpgradeLowersTheTokenAndTheEpochRaisesIt(t *testing.T) {
	bubble(t, func(b *bench) {
		promoted := b.NewStandby(0)
		defer promoted.Close()
		b.wraps(promoted.Promote())
		pool := promoted.Open()
		defer pool.Close()
		e, err := elector.New(pool, "orders")
		b.wraps(err)
		once := func() (int64, error) {
			term, err := e.Campaign(context.Background())
			if err != nil {
				return 0, err
			}
			return term.Token(), term.Resign(context.Background())
		}
		before, err := once()
		b.wraps(err)
		promoted.Upgrade()
		fallen, err := once()
		b.wraps(err)
		if fallen >= before || fallen>>48 != 1 {
			b.Errorf("the token is %x after %x", fallen, before)
		}
		promoted.SetTokenEpoch("2")
		if raised, err := once(); err != nil || raised <= before || raised>>48 != 3 {
			b.Errorf("the token is %x after %x (%v)", raised, before, err)
		}
		promoted.SetTokenEpoch("two")
		if _, _, err := e.TryCampaign(context.Background()); !errors.Is(err, elector.ErrTokenEpoch) {
			b.Errorf("elected with an epoch that is no number: %v", err)
		}
		standby := promoted.NewStandby(0)
		defer standby.Close()
		promoted.SetTokenEpoch("2")
		b.wraps(standby.Promote())
		other := standby.Open()
		defer other.Close()
		e, err = elector.New(other, "orders")
		b.wraps(err)
		if _, _, err := e.TryCampaign(context.Background()); !errors.Is(err, elector.ErrTokenEpoch) {
			b.Errorf("a standby lacks the epoch of its primary: %v", err)
		}
	})
}

// An invalid epoch of the database fails an attempt, but ends no term of the session.
func TestTheLargerEpochCountsAndAnInvalidOneKeepsTheSharedSession(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool, elector.WithTokenEpoch(3))
		b.wraps(err)
		one, err := session.Elector("one")
		b.wraps(err)
		two, err := session.Elector("two")
		b.wraps(err)
		term := b.campaign(one)
		b.SetTokenEpoch("three")
		_, _, err = two.TryCampaign(always)
		if b.wraps(err, elector.ErrTokenEpoch); !term.Valid() || term.Token()>>48 != 1+3 || b.holds(two) {
			b.Errorf("the other term is valid: %t; its token is %x", term.Valid(), term.Token())
		}
		b.SetTokenEpoch("9")
		next := b.campaign(two)
		if next.Token()>>48 != 1+9 {
			b.Errorf("the token is %x", next.Token())
		}
		b.wraps(next.Resign(always))
		b.wraps(term.Resign(always))
		b.wraps(session.Close(always))
	})
}
