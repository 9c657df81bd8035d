package sqlmock_test

import (
	"context"
	"slices"
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestEachChangeOfLeaderIsToldOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2")
		expectBusy(mock, 300, "web-2")
		expectBusy(mock, 301, "web-2") // another session of the same candidate
		expectBusy(mock, 0, "")        // it let go in that instant
		expectBusy(mock, 400, "web-3")
		expectFailedTry(mock, anyError[0])
		expectServerCheck(mock)
		expectBusy(mock, 400, "web-3")
		expectElection(mock, 1)
		expectResign(mock)
		expectBusy(mock, 300, "web-2")
		expectElection(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		resign(t, campaign(t, e))
		settle()
		type change struct {
			previous, current string
			pid               int32
		}
		var got []change
		for _, c := range rec.LeaderChanges() {
			got = append(got, change{c.Previous, c.Current, c.PID})
		}
		want := []change{{"", "web-2", 300}, {"web-2", "web-2", 301}, {"web-2", "web-3", 400}, {"web-3", "web-1", sessionPID},
			{"web-1", "web-2", 300}, {"web-2", "web-1", sessionPID}}
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestTheLeaderIsAskedForOnlyIfAHookWantsToKnow(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		query(mock, "TryLock").WillReturnRows(row("busy", sessionPID))
		query(mock, "TryLock").WillReturnRows(row("granted", sessionPID))
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID, 1))
		expectResign(mock)
		e, err := elector.New(pool, "orders", elector.WithHooks(hooks.Funcs{Elected: func(context.Context, hooks.Elected) {}}))
		wantError(t, err)
		resign(t, campaign(t, e))
	})
}
