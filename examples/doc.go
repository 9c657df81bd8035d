// Package examples adds an election to common kinds of programs. Each file is one
// example to copy. The tests run it on a real PostgreSQL with both drivers:
//
//	errgroup.go   several tasks in one term, beside tasks of every process
//	warm.go       a cache that only the deputy loads, so that the next leader has it at once
//	ticks.go      ticks of a schedule of robfig/cron, each done once, by package ticks
//	leaderonly.go an HTTP route that only the leader serves, to which the others redirect
//	gocron.go     jobs of gocron that only the leader runs, and its crontabs for package ticks
//	cron.go       jobs of robfig/cron that only the leader runs
//	river.go      periodic jobs of river, inserted once per period
//	asynq.go      periodic tasks of asynq, scheduled by the leader
//	server.go     an HTTP server with probes, and a check for libraries of health checks
//	pools.go      pools over pgxpool, and traced by OpenTelemetry
//	outbox.go     an outbox that fenced transactions publish
//	runnable.go   runnables of controller-runtime (NeedLeaderElection)
//	session.go    an election for each tenant, all on one connection
//	shards.go     workers that share out partitions, and do each job once
//	migrations/   migrations of goose or golang-migrate, which one process runs
//	service/      a whole service: HTTP, ticks, an outbox, probes, metrics, roster, logs, and its manifests
//	shutdown/     a program that resigns cleanly on SIGTERM
package examples
