//go:build unix

package examples_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/shard"
)

// record publishes a message to a table, in the order of publication. The table accepts
// a message twice.
func record(by string) func(context.Context, *sql.Tx, examples.Message) error {
	return func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO published (id, body, by) VALUES ($1, $2, $3)", m.ID, m.Body, by)
		return err
	}
}

// outbox is an outbox that tests do not wait for.
func outbox(pool *sql.DB, publish func(context.Context, *sql.Tx, examples.Message) error) examples.Outbox {
	return examples.Outbox{Pool: pool, Publish: publish, Interval: time.Millisecond, Timeout: timeout, Pause: time.Millisecond, Tries: 4}
}

func prepare(t *testing.T, pool *sql.DB) {
	t.Helper()
	execute(t, pool, examples.OutboxTable)
	execute(t, pool, "CREATE TABLE published (place bigint GENERATED ALWAYS AS IDENTITY, id bigint, body text, by text)")
}

func count(t *testing.T, pool *sql.DB) (n int) {
	t.Helper()
	check(t, pool.QueryRow("SELECT count(*) FROM published").Scan(&n))
	return n
}

// await waits until n messages are published.
func await(t *testing.T, pool *sql.DB, n int) {
	t.Helper()
	for deadline := time.Now().Add(timeout); count(t, pool) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages were published within %v", count(t, pool), n, timeout)
		}
	}
}

func TestTheOutboxIsPublishedOnceAndInOrderWhileLeadersChange(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		prepare(t, pool)
		candidates := map[string]candidate{}
		var stops []func() error
		for _, id := range []string{"first", "second"} {
			c := newCandidate(t, pool, id)
			candidates[id] = c
			stops = append(stops, inBackground(t, func(ctx context.Context) error {
				return c.Run(ctx, outbox(pool, record(id)).Lead)
			}))
		}
		const rounds, messages = 8, 50
		for round := range rounds {
			for i := range messages {
				execute(t, pool, "INSERT INTO outbox (body) VALUES ($1)", fmt.Sprint("message ", round*messages+i))
				if i == messages/2 {
					endTerm(t, pool, candidates, round%2 == 0)
				}
			}
		}
		await(t, pool, rounds*messages)
		for _, stop := range stops {
			if err := stop(); !errors.Is(err, errStop) {
				t.Errorf("a candidate returned %v", err)
			}
		}
		var once, ordered bool
		check(t, pool.QueryRow(`SELECT count(*) = count(DISTINCT id), array_agg(id ORDER BY place) = array_agg(id ORDER BY id) FROM published`).
			Scan(&once, &ordered))
		if n := count(t, pool); !once || !ordered || n != rounds*messages {
			t.Errorf("%d of %d messages were published; each once: %v, in order: %v", n, rounds*messages, once, ordered)
		}
	})
}

// endTerm ends the leader's term: it terminates the backend or resigns.
func endTerm(t *testing.T, pool *sql.DB, candidates map[string]candidate, terminate bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, c := range candidates {
			term, leading := c.Term()
			if !leading {
				continue
			}
			if terminate {
				leader, err := c.Leader(soon(t))
				if errors.Is(err, elector.ErrNoLeader) {
					continue
				}
				check(t, err)
				execute(t, pool, "SELECT pg_terminate_backend($1)", leader.PID)
			} else {
				_ = term.Resign(soon(t)) // fails if the session is already lost
			}
			return
		}
	}
	t.Fatalf("no candidate led within %v", timeout)
}

func TestALeaderWhoseTermIsOverPublishesNothing(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		prepare(t, pool)
		c := newCandidate(t, pool, "first")
		began, goOn := make(chan struct{}), make(chan struct{})
		held := func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
			close(began)
			<-goOn
			return record("first")(context.WithoutCancel(ctx), tx, m)
		}
		execute(t, pool, "INSERT INTO outbox (body) VALUES ('message')")
		inBackground(t, func(ctx context.Context) error {
			return c.Run(ctx, outbox(pool, held).Lead)
		})
		receive(t, "the message is about to be published", began)
		term, _ := c.Term()
		resigned := make(chan error, 1)
		go func() { resigned <- term.Resign(soon(t)) }()
		<-term.Context().Done()
		close(goOn)
		check(t, receive(t, "the term ends", resigned))
		wait(t, c, func(e hooks.Demoted) bool { return e.Token == term.Token() })
		if n := count(t, pool); n != 0 {
			t.Errorf("%d messages were published after the term", n)
		}
	})
}

func TestWorkersDoEachJobOnceAndInOrderWhileMembersChange(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		execute(t, pool, examples.JobTable)
		execute(t, pool, "CREATE TABLE finished (place bigint GENERATED ALWAYS AS IDENTITY, job bigint, by text)")
		partitions := shard.Numbers(6)
		worker := func(id string) (stop func() error) {
			return inBackground(t, func(ctx context.Context) error {
				return examples.Work(ctx, pool, partitions, func(ctx context.Context, tx *sql.Tx, job int64) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO finished (job, by) VALUES ($1, $2)", job, id)
					return err
				}, shard.WithSession(elector.WithCandidateID(id)))
			})
		}
		jobs := 0
		add := func() {
			for range 60 {
				execute(t, pool, fmt.Sprintf("INSERT INTO jobs (partition) VALUES ('%d')", jobs%6))
				jobs++
			}
		}
		finished := func(what string) {
			t.Helper()
			for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
				var n int
				check(t, pool.QueryRow("SELECT count(*) FROM jobs WHERE done").Scan(&n))
				if n == jobs {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d of %d jobs are done within %v", what, n, jobs, timeout)
				}
			}
		}
		stops := []func() error{worker("a"), worker("b")}
		add()
		finished("two workers")
		stops = append(stops, worker("c"))
		add()
		finished("a third joins")
		check(t, stops[0]())
		add()
		finished("one leaves")
		for _, stop := range stops[1:] {
			check(t, stop())
		}
		var twice, disordered int
		check(t, pool.QueryRow("SELECT count(*) - count(DISTINCT job) FROM finished").Scan(&twice))
		check(t, pool.QueryRow(`SELECT count(*) FROM finished f JOIN jobs fj ON fj.id = f.job JOIN finished g ON g.place > f.place
			JOIN jobs gj ON gj.id = g.job AND gj.partition = fj.partition WHERE g.job < f.job`).Scan(&disordered))
		if twice > 0 || disordered > 0 {
			t.Errorf("%d jobs were done twice, %d out of order", twice, disordered)
		}
	})
}

func TestAJobThatFindsNoRowsFails(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		execute(t, pool, examples.JobTable)
		execute(t, pool, "INSERT INTO jobs (partition) VALUES ('0')")
		rec := hookstest.NewRecorder()
		stop := inBackground(t, func(ctx context.Context) error {
			return examples.Work(ctx, pool, shard.Numbers(1), func(ctx context.Context, tx *sql.Tx, job int64) error {
				return tx.QueryRowContext(ctx, "SELECT 1 WHERE false").Scan(new(int))
			}, shard.WithSession(elector.WithHooks(rec)))
		})
		_, err := hookstest.Wait(soon(t), rec, func(e hooks.Demoted) bool { return errors.Is(e.Err, sql.ErrNoRows) })
		check(t, err)
		check(t, stop())
	})
}

// process is the program in shutdown/ and its output.
type process struct {
	*exec.Cmd
	lines chan string // closed when the process ends
}

func launch(t *testing.T, program, driver, dsn string, args ...string) process {
	t.Helper()
	p := process{exec.Command(program, args...), make(chan string, 100)}
	p.Env = append(os.Environ(), "DRIVER="+driver, "DATABASE_URL="+dsn)
	out, write := io.Pipe()
	p.Stdout, p.Stderr = write, write
	check(t, p.Start())
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // after a failed test
		_ = p.Wait()
		_ = write.Close()
		for range p.lines {
		}
	})
	return p
}

// expect waits for a line, which must have a prefix.
func (p process) expect(t *testing.T, prefix string) {
	t.Helper()
	if line := receive(t, prefix, p.lines); !strings.HasPrefix(line, prefix) {
		t.Fatalf("got the line %q, want %q", line, prefix)
	}
}

func TestOnSIGTERMTheProgramExitsWithStatus0AndAnotherLeads(t *testing.T) {
	program := filepath.Join(t.TempDir(), "shutdown")
	build(t, program)
	for _, driver := range []string{"postgres", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			dsn := database(t)
			first := launch(t, program, driver, dsn)
			first.expect(t, "leading")
			second := launch(t, program, driver, dsn)
			check(t, first.Process.Signal(syscall.SIGTERM))
			first.expect(t, "stopped")
			if err := first.Wait(); err != nil {
				t.Errorf("the first ended with %v", err)
			}
			second.expect(t, "leading")
			check(t, second.Process.Signal(syscall.SIGTERM))
			second.expect(t, "stopped")
			if err := second.Wait(); err != nil {
				t.Errorf("the second ended with %v", err)
			}
		})
	}
}

func TestWorkThatFailsAfterSIGTERMIsNoCleanStop(t *testing.T) {
	text, err := os.ReadFile("shutdown/main.go")
	check(t, err)
	dir := t.TempDir()
	failing, overlay, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "shutdown")
	check(t, os.WriteFile(failing, []byte(strings.Replace(string(text), "\n\treturn nil\n", "\n\treturn errors.New(\"not done\")\n", 1)), 0o644))
	original, err := filepath.Abs("shutdown/main.go")
	check(t, err)
	check(t, os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, original, failing), 0o644))
	build(t, program, "-overlay", overlay)
	p := launch(t, program, "pgx", database(t))
	p.expect(t, "leading")
	check(t, p.Process.Signal(syscall.SIGTERM))
	p.expect(t, "stopped")
	p.expect(t, "elector: lead failed")
	if _ = p.Wait(); p.ProcessState.ExitCode() != 1 {
		t.Errorf("ended with %v", p.ProcessState)
	}
}

func build(t *testing.T, program string, flags ...string) {
	t.Helper()
	args := append([]string{"build", "-o", program}, flags...)
	if out, err := exec.Command("go", append(args, "./shutdown")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
