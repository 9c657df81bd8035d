//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pgelector/pgelector/e2e/must"
)

func proxied(t *testing.T) *Proxy {
	t.Helper()
	p, err := shared.Get(t).Proxy(t.Context())
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

func TestABlackHoleStopsOldAndNewConnections(t *testing.T) {
	p := proxied(t)
	old := connect(t, p.DSN())
	p.BlackHole()
	silent(t, old)

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if conn, err := pgx.Connect(ctx, p.DSN()); err == nil || ctx.Err() == nil {
		t.Fatalf("a new connection was not left waiting: %v, error %v", conn, err)
	}
}

func TestABlackHoleHidesAClosedClientFromTheServer(t *testing.T) {
	p := proxied(t)
	conn := connect(t, p.DSN(WithParam("application_name", "hangs up")))
	admin := connect(t, shared.Get(t).DSN())
	sessions := func() int {
		return ask[int](t, admin, "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'hangs up'")
	}
	p.BlackHole()
	conn.PgConn().Conn().Close()
	time.Sleep(100 * time.Millisecond)
	if sessions() != 1 {
		t.Error("the server ended the session")
	}
	p.Heal()
	must.Eventually(t, "the server ends the session after Heal", func() bool { return sessions() == 0 })
}

func TestResetBreaksConnectionsWithRST(t *testing.T) {
	for _, name := range []string{"healthy", "black hole"} {
		t.Run(name, func(t *testing.T) {
			p := proxied(t)
			conn := connect(t, p.DSN())
			if name == "black hole" {
				p.BlackHole()
			}
			p.Reset()
			if _, err := conn.PgConn().Conn().Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got error %v, want a connection reset", err)
			}
			p.Heal()
			ask[int](t, connect(t, p.DSN()), "SELECT 1")
		})
	}
}

// A server that dies ends its connections; who is connected through the proxy hears nothing of that.
func TestAForgottenConnectionStaysSilentUntilItIsReset(t *testing.T) {
	p := proxied(t)
	conn := connect(t, p.DSN())
	pid := ask[int](t, conn, "SELECT pg_backend_pid()")
	p.Forget()
	fresh := connect(t, p.DSN())
	if !ask[bool](t, fresh, fmt.Sprintf("SELECT pg_terminate_backend(%d, 10000)", pid)) {
		t.Error("the backend has not ended")
	}
	raw := conn.PgConn().Conn()
	check(t, raw.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	if n, err := raw.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes and %v, want silence", n, err)
	}
	check(t, raw.SetReadDeadline(time.Time{}))
	p.ResetForgotten()
	if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got error %v, want a connection reset", err)
	}
	ask[int](t, fresh, "SELECT 1")
}

func TestSlowDelaysEachDirection(t *testing.T) {
	p := proxied(t)
	conn := connect(t, p.DSN())
	soonest := func() (d time.Duration) { // a busy machine may delay some
		for n := range 5 {
			began := time.Now()
			check(t, conn.Ping(t.Context()))
			if took := time.Since(began); n == 0 || took < d {
				d = took
			}
		}
		return d
	}
	p.Slow(time.Second, 0)
	p.Slow(50*time.Millisecond, 5*time.Millisecond) // replaces the first
	if took := soonest(); took < 90*time.Millisecond || took > 900*time.Millisecond {
		t.Errorf("five round trips took %v and more, want about 100 ms", took)
	}
	p.Heal()
	if took := soonest(); took > 90*time.Millisecond {
		t.Errorf("after Heal five round trips took %v and more", took)
	}
}

func TestAFailedBouncerReportsItsLog(t *testing.T) {
	if _, err := findBouncer(); err != nil {
		t.Skip(err)
	}
	_, err := shared.Get(t).Bouncer(t.Context(), "fantasy")
	if err == nil || !strings.Contains(err.Error(), "fantasy") {
		t.Errorf("got error %v", err)
	}
}

// PgBouncer must not learn that a client has left whose cancel request it may still send.
func TestAShieldKeepsTheConnectionOfACancelRequestOpen(t *testing.T) {
	upstream, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer upstream.Close()
	p, err := newProxy(t.Context(), upstream.Addr().String(), true)
	check(t, err)
	defer func() { check(t, p.Close()) }()
	for what, cancels := range map[string]bool{"a cancel request": true, "another message": false} {
		client, err := net.Dial("tcp4", p.Addr())
		check(t, err)
		pooler, err := upstream.Accept()
		check(t, err)
		sends := append(slices.Clone(cancelRequest), 0, 0, 0, 1, 0, 0, 0, 2)
		if !cancels {
			sends[4]++
		}
		_, err = client.Write(sends)
		check(t, err)
		_, err = io.ReadFull(pooler, sends)
		check(t, err)
		check(t, client.Close())
		wait := must.Patience
		if cancels {
			wait = 100 * time.Millisecond
		}
		check(t, pooler.SetReadDeadline(time.Now().Add(wait)))
		_, err = pooler.Read(sends)
		if open := errors.Is(err, os.ErrDeadlineExceeded); open != cancels {
			t.Errorf("the client of %s has left: %v", what, err)
		}
		check(t, pooler.Close())
	}
}
