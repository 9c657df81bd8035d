//go:build linux

package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/elector"
)

// The candidates' routes.
const (
	multi   fleet.Route = "multi-host DSN"
	cutting fleet.Route = "HAProxy, which cuts"
	plain   fleet.Route = "HAProxy, which does not"
	front   fleet.Route = "PgBouncer, HAProxy"
	behind  fleet.Route = "HAProxy, PgBouncer"
)

var seats = []fleet.Seat{
	{ID: "a", By: "pgx", Route: multi, Standby: elector.Poll},
	{ID: "b", By: "postgres", Route: multi},
	{ID: "c", By: "pgx", Route: cutting, Standby: elector.Wait, Watch: true},
	{ID: "d", By: "postgres", Route: plain, Watch: true},
	{ID: "e", By: "pgx", Route: front, Session: true},
	{ID: "f", By: "postgres", Route: behind, Standby: elector.Wait},
	{ID: "g", By: "pgx", Route: multi},
	{ID: "h", By: "postgres", Route: cutting, Session: true, Watch: true},
}

// retry is long enough that quick attempts after a failover stand out.
const retry = time.Second

// connectTimeout is the connect_timeout of the DSNs.
const connectTimeout = 2 * time.Second

// The modes. The same faults are injected in each.
const (
	async   = "async"   // asynchronous replication
	proxied = "proxied" // asynchronous; all candidates use the HAProxy that cuts
	synced  = "sync"    // synchronous replication
	guarded = "guarded" // synchronous; every candidate has WithSynchronousStandby

	allModes = async + "," + proxied + "," + synced + "," + guarded
)

// asynchronous reports whether commits do not wait for a standby.
func asynchronous(mode string) bool { return mode == async || mode == proxied }

// seatsIn returns the candidates of a mode. In guarded mode none has a shared session.
func seatsIn(mode string) []fleet.Seat {
	all := slices.Clone(seats)
	for i := range all {
		all[i].Retry = retry
		switch mode {
		case proxied:
			all[i].Route = cutting
		case guarded:
			all[i].Session, all[i].Synchronous = false, true
		}
	}
	return all
}

// dsn returns the address of the primary over a route. Both drivers understand this form, also
// with several hosts.
func dsn(c *cluster.Cluster, route fleet.Route) string {
	var addresses, more string
	switch route {
	case multi:
		addresses, more = c.Hosts(), " target_session_attrs=read-write"
	case cutting:
		addresses = c.Addr(cluster.Cutting)
	case plain:
		addresses = c.Addr(cluster.Plain)
	case behind:
		addresses = c.Addr(cluster.Behind)
	case front:
		addresses = c.Front.Addr()
	}
	var hosts, ports []string
	for address := range strings.SplitSeq(addresses, ",") {
		host, port, _ := net.SplitHostPort(address)
		hosts, ports = append(hosts, host), append(ports, port)
	}
	return fmt.Sprintf("host=%s port=%s user=%s dbname=postgres sslmode=disable connect_timeout=%d%s",
		strings.Join(hosts, ","), strings.Join(ports, ","), fleet.Role, int(connectTimeout.Seconds()), more)
}
