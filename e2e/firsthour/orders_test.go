//go:build unix

package firsthour_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// database creates a database, which has no elections and tables yet.
func database(t *testing.T) (dsn string) {
	t.Helper()
	const name = "app"
	conn := connection(t, shared.Get(t).DSN())
	_, err := conn.Exec(t.Context(), "CREATE DATABASE "+name)
	check(t, err)
	t.Cleanup(func() {
		_, err := connection(t, shared.Get(t).DSN()).Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		check(t, err)
	})
	return shared.Get(t).DSN(pgcluster.ForDatabase(name))
}

// connection opens a connection that is closed at the end of the test.
func connection(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// command returns the line of a page's shell blocks that contains the text.
func command(t *testing.T, page, contains string) string {
	t.Helper()
	for line := range strings.Lines(block(t, page, "sh", contains)) {
		if strings.Contains(line, contains) {
			return line
		}
	}
	panic("unreachable")
}

func TestTheNextLeadsWhenTheFirstIsKilled(t *testing.T) {
	const page = "docs/get-started.md"
	m := newModule(t)
	m.run(t, "bash", "-c", command(t, page, "go get "))
	program := block(t, "README.md", "go", "package main")
	m.write(t, "main.go", program)
	terminal := func(line string) *process {
		t.Helper()
		// The page's server is one on the usual port.
		address := strings.Replace(command(t, page, "export DATABASE_URL"), "localhost:5432", shared.Get(t).Addr(), 1)
		return m.start(t, address+line)
	}
	shows := func(p *process, contains string) {
		t.Helper()
		for line := range strings.Lines(block(t, page, "text", contains)) {
			p.says(t, shape(line))
		}
	}
	// go run has another process id than the program.
	const candidate = `candidate=\S+-(\d+)-[0-9a-f]{6} `
	kill := func(p *process, signal syscall.Signal) {
		t.Helper()
		pid, err := strconv.Atoi(p.says(t, candidate)[0])
		check(t, err)
		check(t, syscall.Kill(pid, signal))
	}

	one := terminal("go run .")
	shows(one, "INFO elected")
	two := terminal("go run .")
	shows(two, "INFO became deputy")
	kill(one, syscall.SIGKILL)
	shows(two, "INFO elected")
	if one.token(t) >= two.token(t) {
		t.Error("the second token is not larger")
	}
	kill(two, syscall.SIGTERM)
	two.ends(t, 0)

	lost := m.start(t, "DATABASE_URL=postgres://nobody@127.0.0.1:1/ go run .")
	lost.says(t, "attempt failed .*connection refused")
	kill(lost, syscall.SIGTERM)
	lost.ends(t, 0)

	m.write(t, "main.go", strings.Replace(program, "return nil", `return errors.New("not done")`, 1))
	failing := terminal("go run .")
	failing.token(t)
	kill(failing, syscall.SIGTERM)
	failing.says(t, "not done")
	failing.ends(t, 1)
}

// shipping is a replica, over the driver of its argument.
const shipping = `package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"example.com/orders/orders"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := sql.Open(os.Args[1], os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := orders.ShipAsLeader(ctx, pool); err != nil {
		log.Fatal(err)
	}
}
`

func TestTheReplicasOfThePageShipAndStop(t *testing.T) {
	m := newModule(t)
	m.write(t, "orders/ship.go", block(t, "docs/get-started.md", "go", "package orders"))
	m.write(t, "main.go", shipping)
	m.run(t, "go", "mod", "tidy")
	m.run(t, "go", "build", "-o", "replica", ".")

	dsn := database(t)
	conn := connection(t, dsn)
	do := func(statement string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), statement)
		check(t, err)
	}
	ask := func(question string) (yes bool) {
		check(t, conn.QueryRow(t.Context(), question).Scan(&yes))
		return yes
	}
	do("CREATE TABLE orders (paid boolean NOT NULL, shipped boolean NOT NULL)")
	order := func() {
		t.Helper()
		do("INSERT INTO orders VALUES (true, false)")
		eventually(t, "the order is shipped", func() bool { return ask("SELECT bool_and(shipped) FROM orders") })
	}
	replica := func(driver string) *process {
		t.Helper()
		return m.start(t, fmt.Sprintf("DATABASE_URL='%s' exec ./replica %s", dsn, driver))
	}
	pq := replica("postgres")
	order()
	pgx := replica("pgx")
	pgx.says(t, `became deputy election="ship orders"`)
	check(t, syscall.Kill(pq.cmd.Process.Pid, syscall.SIGKILL))
	order()

	do("BEGIN")
	do("LOCK orders")
	eventually(t, "the replica waits for the table", func() bool {
		return ask("SELECT count(*) > 0 FROM pg_locks WHERE relation = 'orders'::regclass AND NOT granted")
	})
	check(t, syscall.Kill(pgx.cmd.Process.Pid, syscall.SIGTERM))
	pgx.ends(t, 0)
	log, err := shared.Get(t).ServerLog()
	check(t, err)
	if !strings.Contains(log, "@app ERROR:  canceling statement due to user request") {
		t.Error("SIGTERM did not interrupt the statement") // lib/pq would interrupt it without a context, too
	}
}
