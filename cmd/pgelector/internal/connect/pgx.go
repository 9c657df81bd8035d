package connect

import (
	"context"
	"database/sql/driver"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// pgxSettings are the settings that pgx has read.
type pgxSettings struct{ *pgx.ConnConfig }

func readPGX(dsn, name string) (settings, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if err := checkNames(c.RuntimeParams); err != nil {
		return nil, err
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = name
	}
	return pgxSettings{c}, nil
}

func (s pgxSettings) place() place                  { return place{s.Host, s.Port, s.Database, s.User} }
func (s pgxSettings) password() string              { return s.Password }
func (s pgxSettings) parameters() map[string]string { return s.RuntimeParams }

func (s pgxSettings) hosts(ctx context.Context) (n int, each time.Duration) {
	hosts := map[string]bool{net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port))): true}
	for _, f := range s.Fallbacks {
		hosts[net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))] = true
	}
	for address := range hosts {
		n++
		host, _, _ := net.SplitHostPort(address)
		if all, err := s.LookupFunc(ctx, host); err == nil && len(all) > 1 {
			n += len(all) - 1
		}
	}
	return n, s.ConnectTimeout
}

func (s pgxSettings) connector(p Purpose) driver.Connector {
	c := s.Copy()
	switch {
	case p == handshake:
		c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	case p == Inspection && c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement:
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return stdlib.GetConnector(*c)
}

func (s pgxSettings) protocol() string { return s.MaxProtocolVersion }
