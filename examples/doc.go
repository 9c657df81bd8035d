// Package examples puts an election into what people already run. Each file is
// one example, short enough to be copied, and is run by the tests on a real
// PostgreSQL, over both drivers:
//
//	errgroup.go   several tasks under one term, beside what every process does
//	gocron.go     jobs of gocron, run by the leader only
//	cron.go       jobs of robfig/cron, run by the leader only
//	outbox.go     an outbox that is published once, in order, by fenced transactions
//	runnable.go   runnables as controller-runtime has them (NeedLeaderElection)
//	shutdown/     a program that leaves in good order at SIGTERM
package examples
