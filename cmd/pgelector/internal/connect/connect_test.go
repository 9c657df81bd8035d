package connect

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func clean(t *testing.T) {
	t.Helper()
	for _, name := range []string{"DATABASE_URL", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSERVICE", "PGSSLMODE"} {
		t.Setenv(name, "") // restores it after the test
		_ = os.Unsetenv(name)
	}
}

func TestBothDriversFindTheSameServer(t *testing.T) {
	clean(t)
	for _, dsn := range []string{
		"postgres://app:secret@db.example.com:5433/shop",
		"host=db.example.com port=5433 user=app password=secret dbname=shop",
		"postgres:///shop?host=/var/run/postgresql&user=app",
	} {
		a, err := Find(dsn, PGX, "me")
		if err != nil {
			t.Fatal(err)
		}
		b, err := Find(dsn, PQ, "me")
		if err != nil {
			t.Fatal(err)
		}
		if a.pgx.Host != b.pq.Host || a.pgx.Port != b.pq.Port || a.pgx.User != b.pq.User ||
			a.pgx.Password != b.pq.Password || a.pgx.Database != b.pq.Database || b.pq.ApplicationName != "me" {
			t.Errorf("%s: pgx finds %v, pq %v", dsn, a.pgx, b.pq)
		}
		if text := a.String() + b.String(); strings.Contains(text, "secret") {
			t.Errorf("shows the password: %s", text)
		}
	}
}

func TestAPasswordIsScrubbedFromWhatOthersSay(t *testing.T) {
	clean(t)
	target, err := Find("postgres://app:s3cret@127.0.0.1/shop", PGX, "me")
	if err != nil {
		t.Fatal(err)
	}
	if got := target.Scrub("cannot use s3cret here"); got != "cannot use ******** here" {
		t.Errorf("got %q", got)
	}
	var none *Target
	if got := none.Scrub("text"); got != "text" {
		t.Errorf("got %q", got)
	}
}

func TestWhatCannotBeParsedIsNotQuoted(t *testing.T) {
	clean(t)
	for _, dsn := range []string{"postgres://app:s3cret@host:port/", "host=x s3cret", "postgres://app:s3cret%zz@h/", "password='s3cret"} {
		for _, driver := range []string{PGX, PQ} {
			_, err := Find(dsn, driver, "me")
			if !errors.Is(err, ErrUsage) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v", dsn, err)
			}
		}
	}
}
