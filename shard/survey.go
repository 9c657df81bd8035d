package shard

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pooled"
)

// A survey is what one look at the server found.
type survey struct {
	asked time.Time
	seats []int         // taken, in order
	own   map[int]int32 // the backends of those that the asked candidate has; nil if none was
	free  []string      // shards that nobody leads, of those asked for, in their order
	err   error
}

const (
	surveyTimeout = 5 * time.Second  // bounds one look
	firstTimeout  = 30 * time.Second // and those until one has succeeded, once there is a seat: as for its campaign, hosts may be dead
)

// look asks which of the seats with those keys are taken, which of them the candidate has unless it
// is "", and which of the wanted shards are free. direct means that the pool is known to have no
// transaction pooler before it, so that single statements need no transaction.
func look(ctx context.Context, pool *sql.DB, patience time.Duration, direct bool, group string, seats []int64, candidate string, wanted []string) survey {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := backoff.Await(ctx, func(ctx context.Context) (survey, error) { // a driver may not return
		see := func(q db.DBTX) (survey, error) { return see(ctx, db.New(q), group, seats, candidate, wanted) }
		if direct {
			return see(pool)
		}
		return pooled.Ask(ctx, pool, see)
	})
	s.asked, s.err = asked, err
	return s
}

func see(ctx context.Context, q *db.Queries, group string, seats []int64, candidate string, wanted []string) (s survey, err error) {
	taken, err := q.TakenLocks(ctx, db.Keys(seats...))
	if err != nil {
		return s, err
	}
	for _, key := range taken {
		s.seats = append(s.seats, slices.Index(seats, key))
	}
	slices.Sort(s.seats)
	if candidate != "" && len(taken) > 0 {
		holders, err := q.Leaders(ctx, db.Keys(taken...))
		if err != nil {
			return survey{}, err
		}
		s.own = map[int]int32{}
		for _, h := range holders {
			if h.ApplicationName == candidate {
				s.own[slices.Index(seats, h.Key)] = h.Pid
			}
		}
	}
	if len(wanted) == 0 {
		return s, nil
	}
	keys := shardKeys(group, wanted)
	led, err := q.Leaders(ctx, db.Keys(keys...))
	if err != nil {
		return survey{}, err
	}
	held := map[int64]bool{}
	for _, row := range led {
		held[row.Key] = true
	}
	for i, key := range keys {
		if !held[key] {
			s.free = append(s.free, wanted[i])
		}
	}
	return s, nil
}

func seatKeys(group string) (keys []int64) {
	for _, election := range Seats(group) {
		keys = append(keys, elector.KeyFromName(election))
	}
	return keys
}

func shardKeys(group string, names []string) (keys []int64) {
	for _, name := range names {
		keys = append(keys, elector.KeyFromName(Election(group, name)))
	}
	return keys
}

// A Member is a live member of a group.
type Member struct {
	CandidateID string
	PID         int32    // of its backend
	Shards      []string // that it leads
}

// Spread lists the members of a group with those of the shards that each one leads, by
// candidate id, and the shards that nobody leads. It reads the server's list of locks. A hot
// standby, which does not know its primary's locks, is refused with elector.ErrServerReadOnly. A name that
// no group or shard may have is an error that wraps elector.ErrConfig.
func Spread(ctx context.Context, pool *sql.DB, group string, shards []string) (members []Member, free []string, err error) {
	if err := CheckGroup(group); err != nil {
		return nil, nil, err
	}
	if _, err := NewSet(shards...); err != nil {
		return nil, nil, err
	}
	keys := shardKeys(group, shards)
	rows, err := backoff.Await(ctx, func(ctx context.Context) ([]db.LeadersRow, error) { // a driver may not return
		return pooled.Ask(ctx, pool, func(under db.DBTX) ([]db.LeadersRow, error) {
			q := db.New(under)
			ping, err := q.Ping(ctx)
			switch {
			case err != nil:
				return nil, err
			case ping.InRecovery:
				return nil, elector.ErrServerReadOnly
			}
			return q.Leaders(ctx, db.Keys(append(seatKeys(group), keys...)...))
		})
	})
	if err != nil {
		return nil, nil, err
	}
	leader := map[int64]int32{}
	byPID := map[int32]*Member{}
	for _, row := range rows {
		leader[row.Key] = row.Pid
		byPID[row.Pid] = &Member{CandidateID: row.ApplicationName, PID: row.Pid}
	}
	for i, key := range keys {
		if m := byPID[leader[key]]; m != nil {
			m.Shards = append(m.Shards, shards[i])
		} else {
			free = append(free, shards[i])
		}
	}
	for _, m := range byPID {
		members = append(members, *m)
	}
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.CandidateID, b.CandidateID), cmp.Compare(a.PID, b.PID))
	})
	return members, free, nil
}
