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
)

// The routes of the candidates.
const (
	multi   fleet.Route = "multi-host DSN"
	cutting fleet.Route = "HAProxy, which cuts"
	plain   fleet.Route = "HAProxy, which does not"
	front   fleet.Route = "PgBouncer, HAProxy"
	behind  fleet.Route = "HAProxy, PgBouncer"
)

var seats = []fleet.Seat{
	{ID: "a", By: "pgx", Route: multi},
	{ID: "b", By: "postgres", Route: multi, Wait: true},
	{ID: "c", By: "pgx", Route: cutting, Wait: true, Watch: true},
	{ID: "d", By: "postgres", Route: plain, Watch: true},
	{ID: "e", By: "pgx", Route: front, Session: true},
	{ID: "f", By: "postgres", Route: behind, Wait: true},
	{ID: "g", By: "pgx", Route: multi, Wait: true},
	{ID: "h", By: "postgres", Route: cutting, Session: true, Watch: true},
}

// retry is the default retry interval of an election, of which quick attempts after a
// failover can be told apart.
const retry = time.Second

// connectTimeout is what a DSN gives each host.
const connectTimeout = 2 * time.Second

// The modes. In each the same faults are drawn.
const (
	async   = "async"   // asynchronous replication
	proxied = "proxied" // the same, and all candidates come through HAProxy, which cuts
	synced  = "sync"    // synchronous replication
	guarded = "guarded" // the same, and every candidate has WithSynchronousStandby

	allModes = async + "," + proxied + "," + synced + "," + guarded
)

// asynchronous reports whether commits wait for no standby.
func asynchronous(mode string) bool { return mode == async || mode == proxied }

// seatsIn returns the candidates of a mode. One that is guarded has no shared session.
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

// dsn is how a candidate reaches the primary. Both drivers understand this form,
// also with several hosts.
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
