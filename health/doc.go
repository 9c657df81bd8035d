// Package health serves health endpoints for elections: for orchestrators, load
// balancers and monitoring.
//
//	monitor, err := health.New(pool)
//	e, err := elector.New(pool, "orders", elector.WithHooks(monitor))
//	err = monitor.Add(e)
//	mux.Handle("/health", monitor)
//	mux.Handle("/readyz", monitor.Readiness())
//	mux.Handle("/livez", monitor.Liveness())
//
// # The status of an election
//
//	healthy    this process leads, or another candidate does
//	degraded   nobody leads
//	unhealthy  the server did not answer; or this candidate is unhealthy
//	           (elector.WithHealth); or it gave up; or its work runs on after its term
//
// The monitor knows from the lease that this process leads. A leader elsewhere is alive
// as long as it holds its lock: the server ends the session of a silent leader.
//
// # Three handlers
//
// The [Monitor] itself reports the elections. It answers 503 if one is unhealthy.
//
// Readiness asks whether this process can do its part. It answers 503 if an election is
// unhealthy, so a process that cannot reach the database gets no traffic. A degraded
// election is ready: otherwise each change of leader would take all replicas out of the
// load balancer.
//
// Liveness asks whether a restart would help. It answers 503 in one case: work has
// overrun its term and its drain (elector.ErrOverrun, elector.WithDrain) and has not
// returned. Only the end of the process stops such work. Work that needs long to stop
// needs a drain that is as long. Liveness does not ask the database: a database that is
// away must not restart every replica. A frozen process does not answer, and so fails
// its probe too.
//
// All three answer with a [Report] as JSON.
//
// # Cost
//
// The monitor asks the server about all elections that this process follows in one
// statement on a pooled connection, at most once a second ([WithCache]). Concurrent
// probes share one question. An election that this process leads costs nothing. No probe
// waits longer than a second ([WithTimeout]). At most three calls may be stuck in the
// driver at a time.
package health
