//go:build unix

package pgcluster

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Conn opens a connection as superuser to the database "postgres". The caller must close it.
func (c *Cluster) Conn(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, c.DSN(WithParam("application_name", "pgcluster")))
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}
	return conn, nil
}

// Exec runs a statement as superuser in the database "postgres", on a connection of its own.
func (c *Cluster) Exec(ctx context.Context, sql string, args ...any) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	return nil
}

// CreateDatabase creates a database. ForDatabase makes a DSN for it.
func (c *Cluster) CreateDatabase(ctx context.Context, name string) error {
	return c.Exec(ctx, "CREATE DATABASE "+quoteIdent(name))
}

// CreateRole creates a role that can log in and has no other right than every role has, with its own
// defaults for settings, as by ALTER ROLE … SET. ForRole makes a DSN for it.
func (c *Cluster) CreateRole(ctx context.Context, name string, settings map[string]string) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE ROLE "+quoteIdent(name)+" LOGIN"); err != nil {
		return fmt.Errorf("pgcluster: create role %s: %w", name, err)
	}
	for _, setting := range slices.Sorted(maps.Keys(settings)) {
		// ALTER ROLE takes no parameters, so the server, which knows how to quote, builds the statement.
		var statement string
		err := conn.QueryRow(ctx, "SELECT format('ALTER ROLE %I SET %I = %L', $1::text, $2::text, $3::text)",
			name, setting, settings[setting]).Scan(&statement)
		if err == nil {
			_, err = conn.Exec(ctx, statement)
		}
		if err != nil {
			return fmt.Errorf("pgcluster: set %s of role %s: %w", setting, name, err)
		}
	}
	return nil
}

func quoteIdent(name string) string { return pgx.Identifier{name}.Sanitize() }

// DSNOption changes what a DSN asks for.
type DSNOption func(*url.URL)

// ForRole connects as the role instead of the superuser.
func ForRole(name string) DSNOption {
	return func(u *url.URL) { u.User = url.User(name) }
}

// ForDatabase connects to the database instead of "postgres".
func ForDatabase(name string) DSNOption {
	return func(u *url.URL) { u.Path = "/" + name }
}

// WithParam adds a connection parameter, such as application_name or connect_timeout. One that is not
// the driver's own is sent to the server, as a setting of the session.
func WithParam(name, value string) DSNOption {
	return func(u *url.URL) {
		params := u.Query()
		params.Set(name, value)
		// libpq, and pgx after it, take a plus sign for a plus sign and not for a space.
		u.RawQuery = strings.ReplaceAll(params.Encode(), "+", "%20")
	}
}

// DSN returns a postgres:// URL of the server that both lib/pq and pgx accept. Without options it is for
// the superuser and the database "postgres".
func (c *Cluster) DSN(opts ...DSNOption) string { return dsn(c.Addr(), opts) }

func dsn(addr string, opts []DSNOption) string {
	u := &url.URL{Scheme: "postgres", Host: addr, User: url.User(superuser), Path: "/" + maintenanceDB}
	for _, opt := range append([]DSNOption{WithParam("sslmode", "disable")}, opts...) {
		opt(u)
	}
	return u.String()
}
