//go:build unix

package upgrade_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/session"
)

// A candidate is testdata/candidate, which obeys.
type candidate struct {
	*testing.T
	id     string
	orders io.Writer
	lines  chan string
}

func stand(t *testing.T, v version, election, id, lease, heartbeat string) *candidate {
	t.Helper()
	cmd := exec.Command(v.program("candidate"), shared.Get(t).DSN(), election, id, lease, heartbeat)
	in, err := cmd.StdinPipe()
	check(t, err)
	read, write := io.Pipe()
	cmd.Stdout = write
	c := &candidate{T: t, id: id, orders: in, lines: make(chan string, 100)}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = write.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(read); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	start(t, cmd)
	return c
}

func (c *candidate) order(words ...string) {
	c.Helper()
	_, err := fmt.Fprintln(c.orders, strings.Join(words, " "))
	check(c.T, err)
}

// says waits for a line with that first word, and returns the rest.
func (c *candidate) says(word string) string {
	c.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-c.lines:
			if first, rest, _ := strings.Cut(line, " "); first == word {
				return rest
			}
		case <-timeout:
			c.Fatalf("%s does not say %q", c.id, word)
		}
	}
}

func (c *candidate) elected() (token int64) {
	c.Helper()
	token, err := strconv.ParseInt(c.says("elected"), 10, 64)
	check(c.T, err)
	return token
}

func TestAFencedTransactionHoldsUpALeaderOfAnotherVersion(t *testing.T) {
	directions(t, func(t *testing.T, from, to version) {
		conn, err := shared.Get(t).Conn(t.Context())
		check(t, err)
		defer conn.Close(t.Context())
		election, table := name(t), fmt.Sprint("written_", time.Now().UnixNano())
		key := elector.KeyFromName(election)
		_, err = conn.Exec(t.Context(), "CREATE TABLE "+table+" (token bigint)")
		check(t, err)
		// Heartbeats are so rare that the first one does not learn of its loss.
		first := stand(t, from, election, "first", "10m", "2m")
		token := first.elected()
		second := stand(t, to, election, "second", "10m", "2m")
		first.order("write", table)
		first.says("inside")
		var ended bool
		check(t, conn.QueryRow(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
			AND mode = 'ExclusiveLock' AND objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = $1`, key).Scan(&ended))
		high, low := session.Halves(key)
		eventually(t, "the next leader waits at the barrier", func() (waits bool) {
			check(t, conn.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'
				AND NOT granted AND objsubid = 2 AND classid = $1 AND objid = $2 AND application_name = 'second'`,
				uint32(high), uint32(low)).Scan(&waits))
			return waits
		})
		first.order("go on")
		if said := first.says("wrote"); said != "<nil>" {
			t.Fatalf("a transaction that began in its term: %s", said)
		}
		next := second.elected()
		if next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		first.order("write", table)
		if said := first.says("wrote"); said == "<nil>" || !strings.Contains(said, "rolled back") {
			t.Errorf("a transaction after the term: %s", said)
		}
		second.order("write", table)
		second.order("go on")
		if said := second.says("wrote"); said != "<nil>" {
			t.Error(said)
		}
		rows, err := conn.Query(t.Context(), "SELECT token FROM "+table+" ORDER BY token")
		check(t, err)
		written, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		check(t, err)
		if !slices.Equal(written, []int64{token, next}) {
			t.Errorf("the tokens of committed transactions are %d, want %d and %d", written, token, next)
		}
	})
}

func TestALeaderTransfersToACandidateOfAnotherVersion(t *testing.T) {
	directions(t, func(t *testing.T, from, to version) {
		election := name(t)
		first := stand(t, from, election, "first", "5s", "200ms")
		token := first.elected()
		second := stand(t, to, election, "second", "5s", "200ms")
		third := stand(t, from, election, "third", "5s", "200ms")
		first.order("transfer", second.id)
		if said := first.says("transferred"); said != "<nil>" {
			t.Errorf("the transfer: %s", said)
		}
		if next := second.elected(); next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		second.order("transfer", third.id)
		if said := second.says("transferred"); said != "<nil>" {
			t.Errorf("the transfer back: %s", said)
		}
		third.elected()
	})
}
