// Package connect finds the database as psql does, and opens it with either driver.
//
// The --dsn flag comes first, then DATABASE_URL: each a URL or "key=value" pairs. The rest
// comes from libpq's PG* variables, its service file and its password file.
//
// The package never prints a password. It does not pass on the errors of a driver's parser,
// which may quote their input, and it scrubs all other errors.
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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
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

	dsn string
	pgx *pgx.ConnConfig
	pq  *pq.Config

	mu      sync.Mutex
	secrets []string // the passwords that were found
}

// Find parses the DSN, or reads the environment if dsn is empty. name is the default
// application_name.
func Find(dsn, driver, name string) (*Target, error) {
	t := &Target{Driver: driver, Source: "--dsn", dsn: dsn}
	if driver != PGX && driver != PQ {
		return nil, fmt.Errorf("%w: --driver %q: want %s or %s", ErrUsage, driver, PGX, PQ)
	}
	if dsn == "" {
		t.dsn, t.Source = os.Getenv("DATABASE_URL"), "DATABASE_URL"
	}
	if t.dsn == "" {
		t.Source = environment
	}
	var err error
	if t.pgx, err = pgx.ParseConfig(t.dsn); err != nil {
		return nil, t.unusable(err)
	}
	if t.pgx.RuntimeParams["application_name"] == "" {
		t.pgx.RuntimeParams["application_name"] = name
	}
	if driver == PQ {
		if t.pq, err = pqConfig(t.dsn, t.pgx); err != nil {
			return nil, t.unusable(err)
		}
		t.hide(t.pq.Password)
	}
	t.hide(t.pgx.Password)
	return t, nil
}

// hide has Scrub remove a password.
func (t *Target) hide(password string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(password) >= shortestSecret && !slices.Contains(t.secrets, password) {
		t.secrets = append(t.secrets, password)
	}
}

// now returns the settings as they are now: the password file, and the files of certificates, may
// change while the program runs.
func (t *Target) now() *pgx.ConnConfig {
	now, err := pgx.ParseConfig(t.dsn)
	if err != nil { // a file is being written, say
		return t.pgx
	}
	t.hide(now.Password)
	return now
}

// renew sets what may have changed in a copy of the settings that were found. Addresses have not,
// unless the service file has.
func (t *Target) renew(c *pgx.ConnConfig) {
	now := t.now()
	c.Password = now.Password
	if now.Host == c.Host && now.Port == c.Port {
		c.TLSConfig, c.Fallbacks = now.TLSConfig, now.Fallbacks
	}
}

// Hosts returns the number of hosts, and how long the driver tries each: 0 means without
// limit. With pgx each address of a name is a host.
func (t *Target) Hosts(ctx context.Context) (n int, each time.Duration) {
	hosts := map[string]bool{net.JoinHostPort(t.pgx.Host, strconv.Itoa(int(t.pgx.Port))): true}
	for _, f := range t.pgx.Fallbacks {
		hosts[net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))] = true
	}
	if t.pq != nil {
		return len(hosts), t.pq.ConnectTimeout
	}
	for address := range hosts {
		n++
		host, _, _ := net.SplitHostPort(address)
		if all, err := t.pgx.LookupFunc(ctx, host); err == nil && len(all) > 1 {
			n += len(all) - 1
		}
	}
	return n, t.pgx.ConnectTimeout
}

// unusable explains an error without quoting the input.
func (t *Target) unusable(err error) error {
	const hidden = "with valid values (not shown here, because they may contain a password)"
	reason := "want a URL such as postgres://user@host:5432/database or pairs such as host=… dbname=…, " + hidden
	switch service := os.Getenv("PGSERVICE"); {
	case errors.Is(err, os.ErrNotExist):
		reason = "a file that it names does not exist"
	case errors.Is(err, os.ErrPermission):
		reason = "no permission to read a file that it names"
	case t.Source == environment && service != "":
		reason = fmt.Sprintf("want a section [%s], as PGSERVICE says, in ~/.pg_service.conf or the file that PGSERVICEFILE names, %s", service, hidden)
	case t.Source == environment:
		reason = "want variables " + hidden
	}
	return fmt.Errorf("%w: %s: %s", ErrUsage, t.Source, reason)
}

// pqConfig returns the config for lib/pq, which reads the same variables and files, but has
// other defaults than psql.
func pqConfig(dsn string, like *pgx.ConnConfig) (*pq.Config, error) {
	c, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, err
	}
	if socket := filepath.IsAbs(like.Host); socket && c.Host == "localhost" && !c.Hostaddr.IsValid() {
		c.Host, c.SSLMode = like.Host, pq.SSLModeDisable
	}
	if c.SSLMode == "" {
		c.SSLMode = pq.SSLModePrefer
	}
	if c.ApplicationName == "" {
		c.ApplicationName = like.RuntimeParams["application_name"]
	}
	return &c, nil
}

// String names the target without its password.
func (t *Target) String() string {
	host := net.JoinHostPort(t.pgx.Host, strconv.Itoa(int(t.pgx.Port)))
	if filepath.IsAbs(t.pgx.Host) {
		host = t.pgx.Host
	}
	database := t.pgx.Database
	if database == "" {
		database = t.pgx.User
	}
	return fmt.Sprintf("database %q on %s as %q", database, host, t.pgx.User)
}

// Scrub removes the password from text.
func (t *Target) Scrub(text string) string {
	if t == nil {
		return text
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, secret := range t.secrets {
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
)

// Open returns a pool for the target. It does not connect.
func (t *Target) Open(p Purpose) (*sql.DB, error) {
	if t.Driver == PQ {
		c := t.pq.Clone()
		c.BinaryParameters = p == Inspection
		if _, err := pq.NewConnectorConfig(c); err != nil {
			return nil, t.unusable(err)
		}
		return sql.OpenDB(pqConnector{t, c}), nil
	}
	c := t.pgx.Copy()
	if p == Inspection && c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return stdlib.OpenDB(*c, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		t.renew(c)
		return nil
	})), nil
}

// pqConnector connects with the password as it is then.
type pqConnector struct {
	target *Target
	config pq.Config
}

func (p pqConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c := p.config.Clone()
	if c.Password == "" {
		c.Password = p.target.now().Password
	}
	connector, err := pq.NewConnectorConfig(c)
	if err != nil {
		return nil, p.target.unusable(err)
	}
	return connector.Connect(ctx)
}

func (pqConnector) Driver() driver.Driver { return pq.Driver{} }

// Check connects once, and fails within the timeout.
func (t *Target) Check(ctx context.Context, pool *sql.DB, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	_, err := backoff.Await(ctx, func(ctx context.Context) (any, error) { return nil, pool.PingContext(ctx) })
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return t.Failed(err)
}

// SQLSTATEs of refusals other than class 28.
const (
	noSuchDatabase  = "3D000"
	noPrivilege     = "42501"
	noSuchParameter = "42704" // in the DSN
)

// Failed explains an error of a question. It wraps ErrConnect if the server was not reached
// or refused the login.
func (t *Target) Failed(err error) error {
	switch state := pgerr.State(err); {
	case err == nil:
		return nil
	case state == noPrivilege:
		return err
	case Refused(err):
		return fmt.Errorf("%w to %s (found by %s): the server refuses: %w", ErrConnect, t, t.Source, err)
	case state == "" || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "53") || strings.HasPrefix(state, "57"):
		return fmt.Errorf("%w to %s (found by %s): %w", ErrConnect, t, t.Source, err)
	}
	return err
}

// Refused reports whether the server refuses the login, so that retries are useless: a wrong
// password, role or database, a missing privilege, an unknown parameter. (For the first
// three pgbouncer returns 08P01, which is not recognized.)
func Refused(err error) bool {
	switch state := pgerr.State(err); state {
	case noSuchDatabase, noPrivilege, noSuchParameter:
		return true
	default:
		return strings.HasPrefix(state, "28")
	}
}

// Connect opens one connection with pgx, for any chosen driver, to use the protocol
// directly. Its statements work through a pooler in any mode.
func (t *Target) Connect(ctx context.Context) (*pgx.Conn, error) {
	c := t.pgx.Copy()
	t.renew(c)
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, c)
}
