package connect

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// shown is all that the package says of a DSN.
func shown(dsn, driver string) string {
	target, err := Find(dsn, driver, "me")
	if err != nil {
		return err.Error()
	}
	return target.String() + " " + target.Source
}

func TestAURLThatIsSplitInsideItsPasswordIsRefused(t *testing.T) {
	clean(t)
	for _, password := range []string{"p@ss-word", "12/pass-word", "p@ss/word", "12/p@ss", "12345/pass?word", "p@x/pass", "p@x:12/pass-word",
		"p@@pass", "p@[pass]word", "p@%2Fpass", "p@x,pass"} {
		for _, tail := range []string{"@db.example.com:5432/shop", "@db.example.com", "@db.example.com/shop?application_name=x"} {
			for _, driver := range []string{PGX, PQ} {
				dsn := "postgres://app:" + password + tail
				target, err := Find(dsn, driver, "me")
				if err == nil && driver == PQ && target.String()+" --dsn" == shown("postgres://app:x"+tail, driver) {
					continue // lib/pq has found all of the password
				}
				if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "percent-encode the password") {
					t.Errorf("%s, %s: %v, error %v", driver, dsn, target, err)
				}
			}
		}
	}
	for _, dsn := range []string{"postgres://app:12345?pass-word@h/db", "postgres://app:12345#pass-word@h/db", "postgres://app:12345?pass=word@h/db",
		"postgres://app:12345?pass=word&more@h/db", "postgres://app:no-number/db", "postgres://h?password=one@two"} {
		for _, driver := range []string{PGX, PQ} {
			if text := shown(dsn, driver); strings.Contains(text, "pass-") || strings.Contains(text, "word@") || strings.Contains(text, "12345") || strings.Contains(text, "two") ||
				!strings.Contains(text, "percent-encode") && driver == PQ {
				t.Errorf("%s, %s: %s", driver, dsn, text)
			}
		}
	}
	for _, dsn := range []string{"postgres://app:p%40ss%2Fword@db/shop", "postgres:///shop?host=/var/run/postgresql&user=app", "postgres:///shop?host=@socket",
		"postgres://app@%2Fvar%2Frun%2Fpostgresql/shop", "postgres://app@[::1]:5433/shop", "postgres://app@one,two/shop?port=5432,5433", "host=@socket dbname=a/b"} {
		for _, driver := range []string{PGX, PQ} {
			if _, err := Find(dsn, driver, "me"); err != nil && !(driver == PQ && strings.Contains(dsn, "@%2F")) { // which lib/pq does not read
				t.Errorf("%s, %s: %v", driver, dsn, err)
			}
		}
	}
}

// No four characters of a password are shown, even if nobody has percent-encoded or quoted it.
func FuzzNoPartOfAPasswordIsShown(f *testing.F) {
	for _, password := range []string{"s3cret", "p@ss-word", "12/pass-word", "12345?pass=word", "12345#password", "p@[pass]word", "p@%2Fpass", "p@ss, word",
		"hun ter two", "it's a secret", "p@x?host=@pass", "p@yyyy?host=/pass", "1/?user=pass", "0?0=%zz", "\x00pass", "p@ss:word@", "::1]:12345"} {
		f.Add(password, "")
		f.Add(password, "?sslmode=disable")
	}
	f.Fuzz(func(t *testing.T, password, query string) {
		if !utf8.ValidString(password) || len(query) > 0 && query != "?sslmode=disable" {
			t.Skip("lib/pq replaces what is not UTF-8")
		}
		clean(t)
		t.Setenv("PGUSER", "app")
		proper := (&url.URL{Scheme: "postgres", User: url.UserPassword("app", password), Host: "db.example.com:5433", Path: "/shop"}).String()
		for _, driver := range []string{PGX, PQ} {
			public := shown("postgres://app@db.example.com:5433/shop", driver) + shown("postgres://%zz", driver) + shown("postgres:///shop", driver) +
				shown("postgres://app:1@2@3", PGX) + shown("a-b=c", driver) + shown("postgres://app@db:1,db:2/db", PQ) + shown("host=db sslmode=x", driver) + shown("x", driver) +
				" a file that it names does not exist no permission to read a file that it names"
			for _, dsn := range []string{proper, "postgres://app:" + password + "@db.example.com:5433/shop" + query,
				"host=db.example.com port=5433 user=app dbname=shop password=" + password} {
				if !isURL(dsn) && strings.Contains(password, "=") {
					continue // which may be read as a host
				}
				text := shown(dsn, driver)
				for i := range max(0, len(password)-3) {
					if part := password[i : i+4]; strings.Contains(text, part) && !strings.Contains(public, part) {
						t.Fatalf("%s shows %q of %q: %s", driver, part, dsn, text)
					}
				}
			}
		}
	})
}

func TestATargetIsDescribedByTheDriverThatConnects(t *testing.T) {
	clean(t)
	services := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(services, []byte("[app]\nhost=service.example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGSERVICEFILE", services)
	for _, c := range []struct{ driver, dsn, want string }{
		{PQ, "host=name.example.com hostaddr=10.0.0.7 port=5433 user=app dbname=shop", `database "shop" on 10.0.0.7:5433 as "app"`},
		{PQ, "hostaddr=10.0.0.7 user=app dbname=shop", `database "shop" on 10.0.0.7:5432 as "app"`},
		{PQ, "service=app host=dsn.example.com user=app", `database "app" on service.example.com:5432 as "app"`},
		{PGX, "service=app host=dsn.example.com user=app", `database "app" on dsn.example.com:5432 as "app"`},
		{PQ, "host=localhost user=app", `database "app" on localhost:5432 as "app"`},
		{PQ, "postgres://app@localhost/", `database "app" on localhost:5432 as "app"`},
		{PQ, "user=app", `database "app" on ` + socketDir() + ` as "app"`},
		{PQ, "postgres:///shop?user=app", `database "shop" on ` + socketDir() + ` as "app"`},
		{PQ, "postgres://app@/shop", `database "shop" on ` + socketDir() + ` as "app"`},
		{PQ, "host=db user=app sslinline=true sslmode=require sslcert=PEM sslkey=PEM", `database "app" on db:5432 as "app"`},
	} {
		target, err := Find(c.dsn, c.driver, "me")
		if err != nil || target.String() != c.want {
			t.Errorf("%s, %s: %v, error %v, want %s", c.driver, c.dsn, target, err, c.want)
		}
	}
}

func TestPortsOfHostsThatTheDriverDoesNotKnowAreRefused(t *testing.T) {
	clean(t)
	const dsn = "postgres://app@one:5432,two:5433/shop"
	if _, err := Find(dsn, PGX, "me"); err != nil {
		t.Error(err)
	}
	if _, err := Find(dsn, PQ, "me"); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "?port=") {
		t.Errorf("got %v", err)
	}
}

func TestASSLModeThatIsNotValidIsNamed(t *testing.T) {
	clean(t)
	check := func(dsn string) {
		t.Helper()
		for _, driver := range []string{PGX, PQ} {
			if _, err := Find(dsn, driver, "me"); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "sslmode") || !strings.Contains(err.Error(), "verify-full") ||
				strings.Contains(err.Error(), "no-verify") {
				t.Errorf("%s, %s: %v", driver, dsn, err)
			}
		}
	}
	check("postgres://app@db/shop?sslmode=no-verify")
	check("postgres://app@db/shop?sslmode=no-verify&connect_timeout=5")
	check("host=db sslmode=no-verify")
	t.Setenv("PGSSLMODE", "no-verify")
	check("host=db")
	check("postgres://app@db/shop")
	clean(t)
	for _, driver := range []string{PGX, PQ} { // another setting is to blame, too
		if _, err := Find("host=db port=x", driver, "me"); err == nil || strings.Contains(err.Error(), "sslmode") {
			t.Errorf("%s: %v", driver, err)
		}
	}
}

// A password whose spaces are not quoted: a server would repeat its second word.
func TestAServersErrorDoesNotRepeatWhatMayBeAPartOfAPassword(t *testing.T) {
	clean(t)
	for _, driver := range []string{PGX, PQ} {
		target, err := Find("host=db statment_timeout=5 password=hun ter2word=x", driver, "me")
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New(`unrecognized configuration parameter "ter2word"; not "statment_timeout"`)
		got := target.discreet(cause, target.settings())
		if text := got.Error(); strings.Contains(text, "ter2") || !strings.Contains(text, "statment_timeout") || !errors.Is(got, cause) {
			t.Errorf("%s: %s", driver, text)
		}
		if _, err := Find("host=db password=hun ter2-word=x", driver, "me"); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "quote the password") ||
			strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: %v", driver, err)
		}
	}
}

func TestAConnectionStringWhereNoneBelongsIsNotRepeated(t *testing.T) {
	for text, want := range map[string]string{
		`unknown command "postgres://app:s3cret@db/shop" for "pgelector"`: `unknown command "postgres://app:********`,
		"unknown shorthand flag: 'd' in -dsn=host=db password=s3cret":     "unknown shorthand flag: 'd' in -dsn=host=db password=********",
		"want a URL such as postgres://user@host:5432/database":           "want a URL such as postgres://user@host:5432/database",
	} {
		if got := HideDSN(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
