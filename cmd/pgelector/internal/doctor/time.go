package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/db"
)

const (
	trips     = 20  // measured round trips
	perLease  = 50  // longest round trips in a recommended lease
	validity  = 0.7 // share of the lease, with the default drain and margin
	clockSkew = 5 * time.Second
)

// roundTrips compares round trips with the lease. It skips the first one, which connects.
func (x *Examination) roundTrips(ctx context.Context) error {
	var took []time.Duration
	for range trips + 1 {
		trip, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (time.Duration, error) {
			sent := time.Now()
			_, err := q.Ping(ctx)
			return time.Since(sent), err
		})
		if err != nil {
			return err
		}
		took = append(took, trip)
	}
	took = took[1:]
	slices.Sort(took)
	x.worst = took[len(took)-1]
	valid := time.Duration(float64(x.Lease) * validity)
	v, remedy := ok, ""
	switch {
	case x.worst >= valid:
		v, remedy = fail, ": no heartbeat would be answered in time: choose a longer lease or a nearer database"
	case x.worst*perLease > x.Lease:
		v, remedy = warn, ": a short stall costs leadership: choose a longer lease"
	}
	x.say(v, "round trip", "median %v, worst %v of %d; a lease of %v is valid for %v after a heartbeat%s",
		short(took[len(took)/2]), short(x.worst), trips, x.Lease, valid, remedy)
	return nil
}

// clocks compares the clocks of this host and the server. No election depends on the
// difference.
func (x *Examination) clocks(ctx context.Context) error {
	var sent, came time.Time
	micros, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (int64, error) {
		sent = time.Now()
		micros, err := q.Clock(ctx)
		came = time.Now()
		return micros, err
	})
	if err != nil {
		return err
	}
	ahead := time.UnixMicro(micros).Sub(sent.Add(came.Sub(sent) / 2))
	if ahead.Abs() > clockSkew {
		x.say(warn, "clocks", "the server's is %v ahead of this host's: no election depends on the difference, but times in logs and in status do: synchronize both with NTP, and do not step the server's clock while an election has a leader", short(ahead))
		return nil
	}
	x.say(ok, "clocks", "the server's is %v ahead of this host's, ± %v; no election depends on the difference", short(ahead), short(came.Sub(sent)/2))
	return nil
}

// host says what a lease means for a server whose host dies or hangs, which tells no leader. It is the rule
// of docs/servers.md.
func (x *Examination) host(ctx context.Context) error {
	last, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (db.LastCheckpointRow, error) { return q.LastCheckpoint(ctx) })
	proof := "the last checkpoint proves to a new process that it has been this primary"
	switch {
	case err != nil:
		proof = "pg_control_checkpoint cannot be called, so with it each new process waits as long"
	case last.Checkpointed != last.Timeline:
		proof = "no checkpoint proves yet that it has been this primary, so with it each new process waits as long"
	}
	manager := ""
	if x.patroni {
		manager = fmt.Sprintf("with Patroni's watchdog want safety_margin >= %v (its default is 5 s), and without one ttl - loop_wait - retry_timeout >= %v; ", x.Lease, x.Lease)
	}
	x.say(note, "host", "a server whose host dies or hangs tells no leader: with a lease of %v, neither another primary nor this one again may accept connections within %v; "+
		"%sotherwise give every candidate --lock-delay (WithLockDelay) with the longest lease of all; %s", x.Lease, x.Lease-x.Lease/10, manager, proof)
	return nil
}

// connectBound is how long a candidate waits for a connection, with a lease of up to 40 s.
const connectBound = 30 * time.Second

// connecting checks that a frozen host leaves time for the others.
func (x *Examination) connecting(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	hosts, each := x.Target.Hosts(ctx)
	switch want := connectBound / time.Duration(hosts); {
	case each == 0:
		x.say(warn, "connecting", "there is no connect_timeout, so a frozen host blocks a candidate: set it to at most %d", int(want.Seconds()))
	case each > want:
		x.say(warn, "connecting", "connect_timeout is %v, and there are %d hosts: of the %v in which a candidate must connect, a frozen host "+
			"leaves too little: set it to at most %d", each, hosts, connectBound, int(want.Seconds()))
	default:
		x.say(ok, "connecting", "connect_timeout is %v; hosts: %d", each, hosts)
	}
}

// recommend recommends a lease.
func (x *Examination) recommend() {
	if x.Healthy() {
		x.recommended = max(DefaultLease, (x.worst*perLease + time.Second - 1).Truncate(time.Second))
	}
}

func short(d time.Duration) time.Duration {
	if d.Abs() > 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Microsecond)
}
