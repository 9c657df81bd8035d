//go:build unix

package command_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/docscheck"
)

// firstProgram builds the first Go block of a page, as edit changes it.
func firstProgram(t *testing.T, page string, edit func(code string) string) (program string) {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	check(t, err)
	blocks, err := docscheck.Blocks(string(text))
	check(t, err)
	program = filepath.Join(t.TempDir(), "first")
	for _, block := range blocks {
		if block.Language == "go" {
			check(t, docscheck.Compile("../..", page, edit(block.Code), program))
			return program
		}
	}
	t.Fatalf("%s has no Go block", page)
	return ""
}

// The test runs the README's first program as a reader would.
func TestTheFirstProgramOfTheReadme(t *testing.T) {
	t.Parallel()
	program := firstProgram(t, "README.md", func(code string) string { return code })
	start := func(dsn string) *running {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), at(dsn)...)
		return launchCommand(t, cmd)
	}
	dsn := database(t)
	first := start(dsn)
	first.logs(t, "leading, with token")
	second := start(dsn)
	second.logs(t, "leader changed") // it follows
	first.signal(t, 2)
	second.logs(t, "leading, with token")
	first.ends(t, 0)
	second.signal(t, 15)
	second.ends(t, 0)

	lost := start("postgres://nobody@127.0.0.1:1/")
	lost.logs(t, "database away")
	lost.logs(t, "connection refused")
	lost.signal(t, 15)
	lost.ends(t, 0)
}

// The service ships what is paid. It stops without an error, also in the middle of a
// transaction.
func TestTheServiceOfGetStarted(t *testing.T) {
	t.Parallel()
	program := firstProgram(t, "docs/get-started.md", func(code string) string {
		code = strings.Replace(code, "package orders", "package main", 1)
		code = strings.Replace(code, "import (", "import (\n\t\"log\"\n\t\"os\"\n\t\"os/signal\"\n\t\"syscall\"\n\n\t_ \"github.com/jackc/pgx/v5/stdlib\"\n", 1)
		return code + `
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := ShipAsLeader(ctx, pool); err != nil {
		log.Fatal(err)
	}
}`
	})
	dsn := database(t)
	conn := connection(t, dsn)
	do := func(statement string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), statement)
		check(t, err)
	}
	do("CREATE TABLE orders (paid boolean NOT NULL, shipped boolean NOT NULL)")
	do("INSERT INTO orders VALUES (true, false)")
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), at(dsn)...)
	service := launchCommand(t, cmd)
	eventually(t, "the order is shipped", func() (shipped bool) {
		check(t, conn.QueryRow(t.Context(), "SELECT shipped FROM orders").Scan(&shipped))
		return shipped
	})
	do("BEGIN")
	do("LOCK orders")
	eventually(t, "the service waits for the table", func() (waits bool) {
		check(t, conn.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'orders'::regclass AND NOT granted").Scan(&waits))
		return waits
	})
	service.signal(t, 15)
	service.ends(t, 0)
}
