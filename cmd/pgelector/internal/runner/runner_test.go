//go:build unix

package runner

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

func TestTheGraceFitsIntoTheDrainOrIsRefused(t *testing.T) {
	for _, tt := range []struct {
		lease, drain, grace  time.Duration
		wantDrain, wantGrace time.Duration
		refused              bool
	}{
		{lease: 10 * time.Second, grace: NoGrace, wantDrain: 2 * time.Second, wantGrace: 1800 * time.Millisecond},
		{lease: time.Second, grace: NoGrace, wantDrain: 200 * time.Millisecond, wantGrace: 100 * time.Millisecond},
		{lease: 60 * time.Second, grace: 20 * time.Second, wantDrain: 20200 * time.Millisecond, wantGrace: 20 * time.Second},
		{lease: 10 * time.Second, drain: 3 * time.Second, grace: NoGrace, wantDrain: 3 * time.Second, wantGrace: 2800 * time.Millisecond},
		{lease: 10 * time.Second, grace: 0, wantDrain: 2 * time.Second, wantGrace: 0},
		{lease: 10 * time.Second, drain: 2 * time.Second, grace: 1900 * time.Millisecond, refused: true},
		{lease: 10 * time.Second, grace: -time.Second, refused: true},
	} {
		c := Defaults()
		c.Lease, c.Drain, c.Grace = tt.lease, tt.drain, tt.grace
		err := c.Fit()
		if tt.refused {
			if exit.CodeOf(err) != exit.Usage {
				t.Errorf("%+v: error %v, want one of usage", tt, err)
			}
			continue
		}
		if err != nil || c.Drain != tt.wantDrain || c.Grace != tt.wantGrace {
			t.Errorf("%+v: drain %v, grace %v, error %v", tt, c.Drain, c.Grace, err)
		}
		if c.Grace > c.Drain {
			t.Errorf("%+v: a grace of %v outlasts the drain of %v", tt, c.Grace, c.Drain)
		}
	}
}

// pipes is a listener with connections in memory, which time out in virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, open := <-p; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// serve runs the server of --http, and returns a connection to it.
func serve(t *testing.T) net.Conn {
	listener, done := make(pipes), make(chan struct{})
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") }))
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	client, conn := net.Pipe()
	listener <- conn
	t.Cleanup(func() {
		_, _ = client.Close(), server.Close()
		<-done
	})
	return client
}

func TestAConnectionThatDoesNothingIsClosed(t *testing.T) {
	for _, tt := range []struct {
		client string
		use    func(*testing.T, net.Conn)
		closed time.Duration
	}{
		{"says nothing", func(*testing.T, net.Conn) {}, requestTimeout},
		{"says half of a request", func(t *testing.T, c net.Conn) { say(t, c, "GET / HTTP/1.1\r\nHost:") }, requestTimeout},
		{"keeps the body back", func(t *testing.T, c net.Conn) {
			say(t, c, "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n")
		}, requestTimeout},
		{"was answered, and says no more", func(t *testing.T, c net.Conn) {
			for i := range 3 { // a connection that is used stays open
				time.Sleep(time.Duration(i) * (idleTimeout - time.Second) / 2)
				say(t, c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
				answered(t, c)
			}
		}, idleTimeout},
	} {
		t.Run(strings.ReplaceAll(tt.client, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := serve(t)
				tt.use(t, client)
				began := time.Now()
				if err := client.SetReadDeadline(began.Add(24 * time.Hour)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, client); err != nil {
					t.Fatalf("after %v: %v", time.Since(began), err)
				}
				if lasted := time.Since(began); lasted > tt.closed {
					t.Errorf("a client that %s kept its connection for %v, want %v at the most", tt.client, lasted, tt.closed)
				}
			})
		})
	}
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func answered(t *testing.T, conn net.Conn) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "well" {
		t.Errorf("got %q, %v", body, err)
	}
}

// A step of the wall clock ends a term as its command is to start. The next term gets the command.
func TestTheTermAfterAStepOfTheClockGetsItsCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		process := server.NewProcess()
		pool := process.Open()
		defer pool.Close()
		e, err := elector.New(pool, "billing")
		if err != nil {
			t.Fatal(err)
		}
		// No program has such a name, so that the reaper tries to start it, and fails.
		r := &runner{Config: Config{Election: "billing", Command: []string{"\x00"}}, elector: e, reaper: &supervise.Reaper{}}
		r.renew()
		defer r.cancel(nil)
		defer time.AfterFunc(time.Hour, func() { r.cancel(nil) }).Stop()
		terms := 0
		_ = e.Run(r.ctx, func(ctx context.Context, term *elector.Term) error {
			if terms++; terms == 1 {
				synctest.Wait() // until nobody looks at the clock before the next heartbeat
				process.ShiftClock(time.Hour)
				time.AfterFunc(time.Second, func() { process.ShiftClock(-time.Hour) }) // which comes later
			}
			return r.lead(ctx, term)
		})
		if terms != 2 {
			t.Errorf("%d terms", terms)
		}
		if !errors.Is(r.outcome, syscall.EINVAL) {
			t.Errorf("the command was not started: %v", r.outcome)
		}
	})
}

// While the server cannot be asked, the leader that was seen last may lead no more.
func TestNobodyIsShownAsLeaderWhileTheServerIsAway(t *testing.T) {
	pool := electortest.NewServer().Open()
	defer pool.Close()
	p, err := newEndpoints(pool)
	if err != nil {
		t.Fatal(err)
	}
	all := p.hook()
	all.(hooks.LeaderChangedHook).OnLeaderChanged(t.Context(), hooks.LeaderChanged{Current: "web-1"})
	for _, c := range []struct {
		outcome hooks.Outcome
		deputy  bool
		leader  string
	}{{hooks.Busy, true, "web-1"}, {hooks.Failed, false, ""}, {hooks.Failed, false, ""}, {hooks.Busy, true, "web-1"}} {
		all.(hooks.CampaignHook).OnCampaign(t.Context(), hooks.Campaign{Outcome: c.outcome, Deputy: c.deputy})
		if leader, deputy := p.last(); leader != c.leader || deputy != c.deputy {
			t.Errorf("after %v: leader %q, deputy %v", c.outcome, leader, deputy)
		}
	}
}
