//go:build unix

package pgcluster

import (
	"net/url"
	"strings"
)

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
