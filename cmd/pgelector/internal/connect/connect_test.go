package connect

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
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
		if a.last.place() != b.last.place() || a.last.password() != b.last.password() || b.last.(pqSettings).ApplicationName != "me" {
			t.Errorf("%s: pgx finds %v, pq %v", dsn, a, b)
		}
		if text := a.String() + b.String(); strings.Contains(text, "secret") {
			t.Errorf("shows the password: %s", text)
		}
	}
}

func TestEachAddressOfANameIsAHostForPgx(t *testing.T) {
	clean(t)
	for driver, want := range map[string]int{PGX: 3 + 1 + 1, PQ: 3} {
		target, err := Find("postgres://app@three,one,unknown/shop?sslmode=prefer", driver, "me")
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := target.last.(pgxSettings); ok {
			s.LookupFunc = func(_ context.Context, name string) ([]string, error) {
				switch name {
				case "three":
					return []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, nil
				case "one":
					return []string{"10.0.0.4"}, nil
				}
				return nil, errors.New("no such host")
			}
		}
		if n, _ := target.Hosts(t.Context()); n != want {
			t.Errorf("%s: %d hosts, want %d", driver, n, want)
		}
	}
}

func TestAPasswordIsRemovedFromTheTextOfOthers(t *testing.T) {
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

func TestAnUnknownServiceIsNamed(t *testing.T) {
	clean(t)
	t.Setenv("PGSERVICE", "app")
	file := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(file, []byte("[other]\nhost=db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, services := range []string{file, file + ".missing"} {
		t.Setenv("PGSERVICEFILE", services)
		for _, driver := range []string{PGX, PQ} {
			if _, err := Find("", driver, "me"); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "section [app]") || strings.Contains(err.Error(), "URL") {
				t.Errorf("%s: got %v", driver, err)
			}
		}
	}
}

func TestAnInvalidAddressIsNotQuoted(t *testing.T) {
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

// A password may contain anything. Both drivers find it, and nothing shows it.
func FuzzAPasswordIsFoundAndNotShown(f *testing.F) {
	f.Add("app", "s3cret", "db.example.com", "shop")
	f.Add("app", "p@ss:w/rd?#[]%", "::1", "shop")
	f.Add("o'neill", `it's a \ "secret"`, "localhost", "shop with spaces")
	f.Add("app", "пароль и ещё", "127.0.0.1", "выборы")
	f.Add("", "", "", "")
	f.Add("a\x00b\t\xff", "ol\xd1", "\x00", "\b\v")
	f.Fuzz(func(t *testing.T, user, password, host, database string) {
		if !utf8.ValidString(password) {
			t.Skip("lib/pq replaces what is not UTF-8")
		}
		clean(t)
		dsn := (&url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: "db.example.com:5433", Path: "/" + database}).String()
		var found []*Target
		for _, driver := range []string{PGX, PQ} {
			target, err := Find(dsn, driver, host)
			if err != nil {
				if !errors.Is(err, ErrUsage) || hides(dsn, err.Error(), password) {
					t.Fatalf("%s: %v", driver, err)
				}
				continue
			}
			found = append(found, target)
			if text := target.String(); len(password) >= 8 && !strings.Contains(user+" "+database+" db.example.com:5433", password) && strings.Contains(text, password) {
				t.Errorf("%s shows %q: %s", driver, password, text)
			}
			if text := "it said " + password; len(password) >= 8 && strings.Trim(password, "*") != "" && strings.Contains(target.Scrub(text), password) {
				t.Errorf("%s: not scrubbed: %q", driver, target.Scrub(text))
			}
		}
		if len(found) == 2 && found[0].last.password() != found[1].last.password() {
			t.Errorf("pgx finds the password %q, pq %q", found[0].last.password(), found[1].last.password())
		}
	})
}

// hides reports whether the DSN contains the secret and the text shows it. It ignores short secrets.
func hides(dsn, text, secret string) bool {
	return len(secret) >= 8 && strings.Contains(dsn, secret) && strings.Contains(text, secret)
}

func FuzzFindRefusesWithoutQuoting(f *testing.F) {
	f.Add("postgres://app:s3cret@127.0.0.1:5432/shop?sslmode=disable")
	f.Add("host=/var/run/postgresql dbname=shop password='it''s' connect_timeout=3")
	f.Add("postgres://app:s3cret@host:port/")
	for _, dsn := range []string{"host=x s3cret-and-more", "", "='0000", "0='000'0 x=", "x=\xbb0\xb20", "\x86=\xf9 \xfc", "host=/none x=0 connect_timeout=0",
		"postgres://?0", "postgres://!@@", "postgres://a!aaa\xd6@", "postgres://:0 0", "postgres://:0,:?x=", "postgres://0.0.0.A"} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if strings.Contains(dsn, "ssl") || strings.Contains(dsn, "file") {
			t.Skip("names a file, which is whatever lies there")
		}
		clean(t)
		for _, driver := range []string{PGX, PQ} {
			target, err := Find(dsn, driver, "me")
			switch {
			case err == nil && target.String() == "":
				t.Errorf("%s: found something without a name", driver)
			case err != nil && !errors.Is(err, ErrUsage):
				t.Errorf("%s: %v", driver, err)
			case err != nil && len(dsn) > 12 && strings.Contains(err.Error(), dsn):
				t.Errorf("%s quotes what it was given: %v", driver, err)
			}
		}
	})
}

type stateError string

func (e stateError) Error() string    { return "the server says " + string(e) }
func (e stateError) SQLState() string { return string(e) }

func TestAServerThatRefusesAStatementIsNoFailureToConnect(t *testing.T) {
	target, err := Find("host=db user=app", PGX, "test")
	if err != nil {
		t.Fatal(err)
	}
	for state, connects := range map[stateError]bool{"57014": true, "53100": true, "53200": true, "57P03": false, "53300": false, "28P01": false} {
		if failed := target.Failed(state); errors.Is(failed, ErrConnect) == connects || !errors.Is(failed, state) {
			t.Errorf("%v", failed)
		}
	}
	if text := target.Failed(stateError("57014")).Error(); !strings.Contains(text, "is statement_timeout too short") {
		t.Errorf("of a statement that was ended: %s", text)
	}
}
