// Package health answers whether an election is well, and whether this process
// should be restarted or spared: by HTTP, for orchestrators, load balancers and
// monitors.
//
//	monitor, err := health.New(pool)
//	e, err := elector.New(pool, "orders", elector.WithHooks(monitor))
//	err = monitor.Add(e)
//	mux.Handle("/health", monitor)
//	mux.Handle("/readyz", monitor.Readiness())
//	mux.Handle("/livez", monitor.Liveness())
//
// # The states of an election
//
//	healthy    this process leads, or the server says that another candidate does
//	degraded   nobody leads: between two leaders, or with none to come
//	unhealthy  who leads cannot be told; or this process takes no part any more; or
//	           its work runs on after its term: either nobody can lead, because the
//	           lock stays held, or another may lead already
//
// That this process leads is known without asking, from its lease. That a leader
// whose lock the server holds is alive is what the lease is for: the server ends
// its session when it falls silent.
//
// # Three questions, three handlers
//
// The [Monitor] itself answers for the elections, to monitors and people: 503 if
// any is unhealthy.
//
// Readiness asks whether this process can do its part: 503 if any election is
// unhealthy, so that a process that cannot reach the database gets no traffic. A
// degraded election is ready, or at each change of leader all replicas would
// leave the load balancer together.
//
// Liveness asks whether a restart would help. It does in one case only: work that
// has overrun its term and does not return (elector.ErrOverrun), whether the lock is
// still held for it or not, since nothing but the end of its process stops it. It
// turns bad when the drain is over (elector.WithDrain), so work that needs long to
// stop needs a drain that is as long. Liveness is the watchdog for that, fails until
// the work has returned, and asks nothing of the database: were it to fail when
// that is away, all replicas would be restarted, for nothing. A process that is
// frozen does not answer at all, which fails its probe too.
//
// All three answer with the JSON of a [Report].
//
// # What a storm of probes costs
//
// The server is asked about all elections that this process follows by one
// statement, on a connection of the pool, at most once in a second ([WithCache]);
// of probes that come at the same time one asks, and all get its answer. An
// election that this process leads costs nothing. No probe waits longer than a
// second ([WithTimeout]), and calls that do not return from the driver are left
// alone, three at most.
package health
