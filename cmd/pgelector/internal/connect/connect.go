// Package connect finds the database as psql does, and opens it with either driver.
//
// The --dsn flag comes first, then DATABASE_URL: each a URL or "key=value" pairs. The rest
// comes from libpq's PG* variables, its service file and its password file. The driver that
// connects reads all of that, and nothing else does: pgx.go, pq.go.
//
// The package never prints a password. Of a DSN it prints only what that driver has read as host,
// port, database and user, and it refuses a URL that was split inside its password (url.go). It
// does not pass on the errors of a driver's parser, which may quote their input, and it scrubs
// all other errors.
package connect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
)

// The drivers.
const (
	PGX = "pgx"
	PQ  = "pq"
)

// environment is the source without a DSN.
const environment = "the PG* variables and libpq's files and defaults"

// ErrUsage is returned if the user's input is invalid.
var ErrUsage = errors.New("bad usage")

// Target is a database and the way to reach it.
type Target struct {
	Driver string
	Source string // where the settings came from

	dsn  string
	name string // the default application_name

	mu      sync.Mutex
	last    settings // as they were read last
	secrets []string // the passwords that were found
}

// settings are what a driver has read from the DSN, the variables, and the files that these name.
type settings interface {
	place() place
	// hosts returns the number of hosts, and how long the driver tries each: 0 means without limit.
	hosts(context.Context) (n int, each time.Duration)
	password() string
	protocol() string              // the newest version that is asked for; "" or "3.0" where it is the driver's default
	parameters() map[string]string // that are sent to the server as they are
	connector(Purpose) driver.Connector
}

// place is what may be printed of settings.
type place struct {
	host           string // a name, an address, or where a socket is
	port           uint16
	database, user string
}

// Find reads the DSN, or the environment if dsn is empty. name is the default application_name.
func Find(dsn, driver, name string) (*Target, error) {
	t := &Target{Driver: driver, Source: "--dsn", dsn: dsn, name: name}
	if driver != PGX && driver != PQ {
		return nil, fmt.Errorf("%w: --driver %q: want %s or %s", ErrUsage, driver, PGX, PQ)
	}
	if dsn == "" {
		t.dsn, t.Source = os.Getenv("DATABASE_URL"), "DATABASE_URL"
	}
	if t.dsn == "" {
		t.Source = environment
	}
	if split(t.dsn, driver) {
		return nil, t.unusable(errSplit)
	}
	var err error
	if t.last, err = t.read(t.dsn); err != nil {
		return nil, t.unusable(err)
	}
	t.hide(t.last.password())
	return t, nil
}

func (t *Target) read(dsn string) (settings, error) {
	if t.Driver == PQ {
		return readPQ(dsn, t.name)
	}
	return readPGX(dsn, t.name)
}

// now reads the settings as they are now: a password, a certificate or a service may change in its
// file while the program runs.
func (t *Target) now() settings {
	now, err := t.read(t.dsn)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil { // else a file is being written, say
		t.last = now
		t.hide(now.password())
	}
	return t.last
}

func (t *Target) settings() settings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// hide has Scrub remove a password. The caller holds mu, or is the only one to have t.
func (t *Target) hide(password string) {
	if len(password) >= shortestSecret && !slices.Contains(t.secrets, password) {
		t.secrets = append(t.secrets, password)
	}
}

// Hosts returns the number of hosts, and how long the driver tries each: 0 means without
// limit. With pgx each address of a name is a host.
func (t *Target) Hosts(ctx context.Context) (n int, each time.Duration) {
	return t.settings().hosts(ctx)
}

// unusable explains an error without quoting the input.
func (t *Target) unusable(err error) error {
	const hidden = "with valid values (not shown here, because they may contain a password)"
	reason := "want a URL such as postgres://user@host:5432/database or pairs such as host=… dbname=…, " + hidden
	if isURL(t.dsn) {
		reason += ": " + encode
	}
	switch service := os.Getenv("PGSERVICE"); {
	case errors.Is(err, errSplit), errors.Is(err, errName), errors.Is(err, errPorts):
		reason = err.Error()
	case errors.Is(err, os.ErrNotExist):
		reason = "a file that it names does not exist"
	case errors.Is(err, os.ErrPermission):
		reason = "no permission to read a file that it names"
	case t.readsWith("sslmode", "verify-full"), t.Driver == PQ && !slices.Contains(sslModes, os.Getenv("PGSSLMODE")):
		reason = "sslmode has a value that is not valid here: want one of" + strings.Join(sslModes, " ")
	case t.Source == environment && service != "":
		reason = fmt.Sprintf("want a section [%s], as PGSERVICE says, in ~/.pg_service.conf or the file that PGSERVICEFILE names, %s", service, hidden)
	case t.Source == environment:
		reason = "want variables " + hidden
	}
	return fmt.Errorf("%w: %s: %s", ErrUsage, t.Source, reason)
}

var sslModes = []string{"", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// Protocol is the newest version of the wire protocol that the settings ask for, beyond 3.0; else "".
func (t *Target) Protocol() string {
	if asked := t.settings().protocol(); asked != "3.0" {
		return asked
	}
	return ""
}

// readsWith reports whether the DSN can be read with another value of a setting.
func (t *Target) readsWith(key, value string) bool {
	dsn, set := t.dsn, key+"="+value
	if isURL(dsn) { // pgx takes the last of two values, and lib/pq the first
		location, query, _ := strings.Cut(dsn, "?")
		dsn = location + "?" + set + "&" + query + "&" + set
		dsn = strings.ReplaceAll(dsn, "&&", "&")
	} else {
		dsn += " " + set
	}
	_, err := t.read(dsn)
	return err == nil
}

// String names the target without its password.
func (t *Target) String() string {
	p := t.settings().place()
	host := net.JoinHostPort(p.host, strconv.Itoa(int(p.port)))
	if isSocket(p.host) {
		host = p.host
	}
	database := p.database
	if database == "" {
		database = p.user
	}
	return fmt.Sprintf("database %q on %s as %q", database, host, p.user)
}

func isSocket(host string) bool { return filepath.IsAbs(host) || strings.HasPrefix(host, "@") }

// Scrub removes the password from text.
func (t *Target) Scrub(text string) string {
	if t == nil {
		return text
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return without(text, t.secrets)
}

func without(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "********")
	}
	return text
}

// shortestSecret keeps Scrub from mangling every text: one or two letters occur everywhere,
// and drivers do not print passwords on purpose.
const shortestSecret = 3

// ErrConnect is returned if the server could not be reached or refused the login.
var ErrConnect = errors.New("could not connect")

// Purpose is the purpose of a pool.
type Purpose int

const (
	// Election is for an elector. The pool has the driver's defaults.
	Election Purpose = iota
	// Inspection is for questions. Each is one round trip, and so works through a pooler
	// in any mode.
	Inspection
	// handshake is for Conn. pgx sends statements alone, in the simple protocol.
	handshake
)

// Open returns a pool for the target. It does not connect.
func (t *Target) Open(p Purpose) (*sql.DB, error) { return sql.OpenDB(connector{t, p}), nil }

// connector reads the settings anew for each connection, as psql does.
type connector struct {
	target  *Target
	purpose Purpose
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	now := c.target.now()
	conn, err := now.connector(c.purpose).Connect(ctx)
	if err != nil {
		return nil, c.target.discreet(err, now)
	}
	return conn, nil
}

func (c connector) Driver() driver.Driver { return c.target.settings().connector(c.purpose).Driver() }

// discreet hides in the text of an error what may be a part of a password.
func (t *Target) discreet(err error, s settings) error {
	if text := without(t.Scrub(err.Error()), doubtful(t.dsn, s.parameters())); text != err.Error() {
		return &discreetError{text, err}
	}
	return err
}

type discreetError struct {
	text string
	err  error
}

func (e *discreetError) Error() string { return e.text }
func (e *discreetError) Unwrap() error { return e.err }

// Check connects once, and fails within the timeout.
func (t *Target) Check(ctx context.Context, pool *sql.DB, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	_, err := ask.Await(ctx, func(ctx context.Context) (any, error) { return nil, pool.PingContext(ctx) })
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return t.Failed(err)
}

// SQLSTATEs of refusals other than class 28, and of a statement that was ended.
const (
	noSuchDatabase  = "3D000"
	noPrivilege     = "42501"
	noSuchParameter = "42704" // in the DSN
	cancelled       = "57014" // a statement
	tooMany         = "53300" // connections; of the same class are a full disk and a full lock table
)

// Failed explains an error of a question. It wraps ErrConnect if the server was not reached
// or refused the login.
func (t *Target) Failed(err error) error {
	switch state := ask.State(err); {
	case err == nil:
		return nil
	case state == noPrivilege:
		return err
	case state == cancelled:
		return fmt.Errorf("the server does not let a statement finish: is statement_timeout too short for this role or database, or does somebody cancel it? %w", err)
	case Refused(err):
		return fmt.Errorf("%w to %s (found by %s): the server refuses: %w", ErrConnect, t, t.Source, err)
	case state == "" || strings.HasPrefix(state, "08") || state == tooMany || strings.HasPrefix(state, "57"):
		return fmt.Errorf("%w to %s (found by %s): %w", ErrConnect, t, t.Source, err)
	}
	return err
}

// Refused reports whether the server refuses the login, so that retries are useless: a wrong
// password, role or database, a missing privilege, an unknown parameter. (For the first
// three pgbouncer returns 08P01, which is not recognized.)
func Refused(err error) bool {
	switch state := ask.State(err); state {
	case noSuchDatabase, noPrivilege, noSuchParameter:
		return true
	default:
		return strings.HasPrefix(state, "28")
	}
}
