//go:build unix

package e2e_test

import (
	"context"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	pgxdriver "github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/notify/pgx"
	"github.com/pgelector/pgelector/notify/pq"
)

// byWakingOnly is a retry interval longer than any test: an earlier attempt is caused by a
// notification.
var byWakingOnly = elector.WithRetryInterval(10 * time.Minute)

// notifier makes a notifier for the i-th candidate's driver.
func (d drivers) notifier(t *testing.T, i int, dsn string, lost func(error)) elector.Notifier {
	t.Helper()
	if d.name(i) == "pgx" {
		config, err := pgxdriver.ParseConfig(dsn)
		check(t, err)
		w, err := pgxnotify.New(config, lost)
		check(t, err)
		return w
	}
	w, err := pqnotify.New(dsn, lost)
	check(t, err)
	return w
}

// listenDSN returns the server's own address and the application_name of its connections. No
// transaction pooler forwards notifications.
func (s *server) listenDSN() (dsn, name string) {
	name = unique("listen")
	return s.Cluster.DSN(pgcluster.WithParam("application_name", name)), name
}

func TestAResignationWakesThoseThatPoll(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		dsn, name := s.listenDSN()
		stand := func(i int) *candidate {
			return s.stand(t, d.open(t, i, s.DSN()), election, polling, byWakingOnly, elector.WithNotifier(d.notifier(t, i, dsn, nil))).run(t, nil)
		}
		first := stand(0)
		old := first.elected(t)
		second := stand(1)
		second.follows(t)
		eventually(t, "both listen", func() bool {
			return one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE 'LISTEN%' AND state = 'idle'", name) == 2
		})
		check(t, termOf(t, first).Resign(soon(t)))
		if fresh := second.elected(t); fresh.Token <= old.Token {
			t.Errorf("token %d does not rise above %d", fresh.Token, old.Token)
		}
	})
}

func TestANotificationWritesNoMoreThanACommit(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := quiet(t)
		dsn, _ := s.listenDSN()
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), elector.WithNotifier(d.notifier(t, 0, dsn, nil)))
		position := func() int64 {
			return one[int64](t, s.admin, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
		}
		resignation := func() int64 {
			term, err := c.Campaign(soon(t))
			check(t, err)
			wait(t, c, func(e hooks.Heartbeat) bool { return e.Token == term.Token() }) // after the notification of the election
			before := position()
			expect(t, term.Resign(soon(t)))
			return position() - before
		}
		resignation() // the first use of a catalog may clean a page of it
		if bytes := resignation(); bytes == 0 || bytes > 200 {
			t.Errorf("a resignation wrote %d bytes of WAL", bytes)
		} else {
			t.Logf("a resignation wrote %d bytes of WAL", bytes)
		}
	})
}

// PostgreSQL lets one transaction that notifies commit at a time, and one of the application may
// wait for a standby that is away. Then no notification is sent, and nothing else is kept
// waiting.
func TestANotificationThatHangsCostsNoTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t, pgcluster.WithSetting("synchronous_standby_names", "nobody")))
		ctx, stop := context.WithCancel(t.Context())
		hung := make(chan error, 1)
		go func() {
			_, err := s.admin.ExecContext(ctx, "SELECT pg_logical_emit_message(true, '', 'a write'), pg_notify('jobs', '')")
			hung <- err
		}()
		defer func() { stop(); <-hung }()
		eventually(t, "the application's NOTIFY waits for the standby", func() bool { return s.waiting(t) == 1 })
		election := s.election(t)
		dsn, _ := s.listenDSN()
		first := s.stand(t, d.open(t, 0, s.DSN()), election, elector.WithNotifier(d.notifier(t, 0, dsn, nil))).run(t, nil)
		first.elected(t)
		second := s.stand(t, d.open(t, 0, s.DSN()), election, polling, elector.WithNotifier(d.notifier(t, 0, dsn, nil))).run(t, nil)
		second.follows(t)
		eventually(t, "the leader's notification waits for it", func() bool {
			return one[int](t, s.admin, "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted") > 0
		})
		first.survives(t, while)
		first.end(t)
		second.survives(t, while)
		if s.waiting(t) != 1 {
			t.Error("the application's NOTIFY has not waited until now")
		}
	})
}

// A notification needs two places in the lock table.
func TestAResignationThatCannotNotifyEndsNoOtherTerm(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := cramped(t)
		elections := s.elections(t, 2)
		dsn, _ := s.listenDSN()
		leader := s.share(t, d.open(t, 0, s.DSN()), elector.WithNotifier(d.notifier(t, 0, dsn, nil))).join(t, elections).run(t, nil)
		eventually(t, "all are led", func() bool { return leader.leading() == 2 })
		term, other := termOf(t, leader.all[0]), termOf(t, leader.all[1])
		defer s.fill(t, 0)()
		expect(t, term.Resign(soon(t)))
		expect(t, other.Verify(soon(t)))
	})
}

// A dead link looks like a quiet one, so the notifier pings.
func TestANotifierOnADeadLinkReconnects(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		lost := make(chan error, 100)
		woken := make(chan string, 100)
		w := d.notifier(t, 0, l.cut(pgcluster.WithParam("connect_timeout", "2")), func(err error) { lost <- err })
		leave := w.Subscribe(func(payload string) { woken <- payload })
		defer leave()
		<-woken // it is connected
		l.proxy.BlackHole()
		select {
		case <-lost:
		case <-time.After(40*time.Second + patience): // its timeouts, and patience
			t.Fatal("the notifier has not noticed that its link is dead")
		}
		l.proxy.Heal()
		select {
		case payload := <-woken:
			if payload != "" {
				t.Errorf("received %q", payload)
			}
		case <-time.After(patience):
			t.Fatal("the notifier has not connected again")
		}
		l.proxy.BlackHole()
		left := time.Now()
		leave()
		soonAfter(t, "leaving", left)
		l.proxy.Heal()
	})
}

// A password that rotates: the notifier asks for one before each connection, and listens again after its connection was
// cut. With the password that it was first given it would be refused for ever.
func TestANotifierUsesThePasswordThatIsValidWhenItConnects(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := withoutPooler(t, own(t))
		const role = "rotating"
		_, err := s.admin.ExecContext(soon(t), "CREATE ROLE "+role+" LOGIN PASSWORD 'first'")
		check(t, err)
		file := one[string](t, s.admin, "SHOW hba_file")
		check(t, os.WriteFile(file, []byte("host all "+role+" all scram-sha-256\nhost all all all trust\nlocal all all trust\n"), 0o600))
		_, err = s.admin.ExecContext(soon(t), "SELECT pg_reload_conf()")
		check(t, err)
		var password atomic.Pointer[string]
		set := func(to string) { password.Store(&to) }
		set("first")
		listen, name := s.listenDSN()
		user := func(password string) string {
			u, err := url.Parse(listen)
			check(t, err)
			u.User = url.UserPassword(role, password)
			return u.String()
		}
		failed := make(chan error, 100)
		report := func(err error) { failed <- err }
		var w elector.Notifier
		if d.name(0) == "pgx" {
			config, err := pgxdriver.ParseConfig(user("none"))
			check(t, err)
			w, err = pgxnotify.New(config, report, pgxnotify.WithBeforeConnect(func(_ context.Context, config *pgxdriver.ConnConfig) error {
				config.Password = *password.Load()
				return nil
			}))
			check(t, err)
		} else {
			w, err = pqnotify.New(user("none"), report, pqnotify.WithBeforeConnect(func(context.Context) (string, error) { return user(*password.Load()), nil }))
			check(t, err)
		}
		woken := make(chan string, 100)
		defer w.Subscribe(func(payload string) { woken <- payload })()
		connected := func() (pid int) {
			pids := list[int](t, s.admin, "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND usename = $2 AND query LIKE 'LISTEN%' AND state = 'idle'", name, role)
			if len(pids) == 1 {
				pid = pids[0]
			}
			return pid
		}
		eventually(t, "it listens", func() bool { return connected() != 0 })
		first := connected()
		_, err = s.admin.ExecContext(soon(t), "ALTER ROLE "+role+" PASSWORD 'second'")
		check(t, err)
		s.terminate(t, first)
		for { // until it was refused with the password that is not valid any more
			select {
			case err := <-failed:
				if stateOf(err) == "28P01" {
					set("second")
					eventually(t, "it listens again", func() bool { pid := connected(); return pid != 0 && pid != first })
					return
				}
			case <-time.After(patience):
				t.Fatal("it was not refused")
			}
		}
	})
}
