//go:build unix

// Package shard_test tests groups of shards with processes on real servers, over both drivers.
package shard_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/shard"
)

// memberVariable holds the settings of a member. If it is set, the test binary is a member
// instead of running the tests.
const memberVariable = "PGELECTOR_E2E_SHARD_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberVariable); text != "" {
		os.Exit(beMember(text))
	}
	goleak.VerifyTestMain(m)
}

type settings struct {
	Driver, DSN, Group, ID string
	Shards                 int
}

// An entry is what a member says of one shard. All members have the clock of this machine.
type entry struct {
	ID, Shard string
	Begins    bool // its work begins, or else has returned
	At        int64
}

const lease = 2 * time.Second

// beMember runs a member until SIGTERM, and writes its entries to standard output.
func beMember(text string) (status int) {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(name string, begins bool) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(entry{ID: s.ID, Shard: name, Begins: begins, At: time.Now().UnixNano()})
	}
	err = shard.Run(ctx, pool, s.Group, shard.Numbers(s.Shards), func(ctx context.Context, name string, _ *elector.Term) error {
		say(name, true)
		<-ctx.Done()
		say(name, false)
		return nil
	}, shard.WithSession(elector.WithCandidateID(s.ID), elector.WithLease(lease), elector.WithHeartbeatInterval(lease/10)))
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
