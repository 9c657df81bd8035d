package deputy

import (
	"context"
	"database/sql"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/seat"
)

// A Follower is a session that holds a seat of an election, or waits for its lock.
type Follower struct {
	holder.Holder
	Deputy bool      // it holds a seat
	Since  time.Time // when its wait began; zero if it does not wait, or the server does not know yet
}

// FollowersOf asks, as holder.Of does, for the sessions that hold a seat of the election or
// wait for its lock. The leader's session is not among them.
func FollowersOf(ctx context.Context, pool *sql.DB, key int64, timeout time.Duration) ([]Follower, error) {
	rows, err := pooled.Read(ctx, pool, timeout, (*db.Queries).Deputies, db.DeputiesParams{Key: key, Seat: seat.Key(key)})
	if err != nil {
		return nil, err
	}
	followers := make([]Follower, 0, len(rows))
	for _, row := range rows {
		followers = append(followers, Follower{
			Holder: holder.Holder{CandidateID: row.ApplicationName, PID: row.Pid, User: row.Usename, Addr: row.ClientAddr, SessionAt: db.Time(row.ConnectedMicros)},
			Deputy: row.Seated,
			Since:  db.Time(row.WaitingMicros),
		})
	}
	return followers, nil
}
