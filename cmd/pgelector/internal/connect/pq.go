package connect

import (
	"context"
	"database/sql/driver"
	"errors"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/lib/pq"
)

// pqSettings are the settings that lib/pq has read.
type pqSettings struct{ pq.Config }

// errPorts is returned for a URL with a port for each of several hosts, which lib/pq does not know.
var errPorts = errors.New("lib/pq does not know a port for each host of a URL: want postgres://user@one,two/database?port=5432,5433")

// readPQ reads the same variables and files as psql, with psql's defaults and not lib/pq's.
func readPQ(dsn, name string) (settings, error) {
	c, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, err
	}
	if c.Host == "localhost" && !c.Hostaddr.IsValid() && os.Getenv("PGHOST") == "" {
		local, err := pq.NewConfig(withDefault(dsn, "host", socketDir()))
		if err != nil {
			return nil, err
		}
		c = local // still localhost, if the DSN or the service says so
	}
	for _, host := range append(others(c), c.Host) {
		if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") && !isSocket(host) {
			return nil, errPorts
		}
	}
	if err := checkNames(c.Runtime); err != nil {
		return nil, err
	}
	if c.SSLMode == "" && c.SSLNegotiation != pq.SSLNegotiationDirect {
		c.SSLMode = pq.SSLModePrefer
	}
	if c.ApplicationName == "" {
		c.ApplicationName = name
	}
	return pqSettings{c}, nil
}

func others(c pq.Config) (hosts []string) {
	for _, m := range c.Multi {
		hosts = append(hosts, m.Host)
	}
	return hosts
}

// withDefault returns a DSN with a value for a key that has none. In a URL lib/pq takes the first of two
// values, and in pairs the last.
func withDefault(dsn, key, value string) string {
	switch set := key + "=" + value; {
	case !isURL(dsn):
		return set + " " + dsn
	case strings.Contains(dsn, "?"):
		return dsn + "&" + set
	default:
		return dsn + "?" + set
	}
}

// socketDir returns where pgx and most builds of psql look for the server's socket, or localhost if
// there is no such place.
func socketDir() string {
	for _, dir := range []string{"/var/run/postgresql", "/private/tmp", "/tmp"} {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	return "localhost"
}

func (s pqSettings) place() place {
	host := s.Host
	if s.Hostaddr.IsValid() {
		host = s.Hostaddr.String()
	}
	return place{host, s.Port, s.Database, s.User}
}

func (s pqSettings) password() string              { return s.Password }
func (s pqSettings) parameters() map[string]string { return s.Runtime }

func (s pqSettings) hosts(context.Context) (n int, each time.Duration) {
	return 1 + len(s.Multi), s.ConnectTimeout
}

func (s pqSettings) connector(p Purpose) driver.Connector {
	c := s.Clone()
	c.BinaryParameters = c.BinaryParameters || p == Inspection
	connector, _ := pq.NewConnectorConfig(c) // whose error is always nil
	return connector
}

func (s pqSettings) protocol() string { return string(s.MaxProtocolVersion) }
