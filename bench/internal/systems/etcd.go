package systems

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/pgelector/pgelector/bench/internal/servers"
)

const noBackends = "etcd, Consul and Kubernetes have no backends, and a lease outlives its connection"

// etcdElection is etcd's own election recipe. All elections of a candidate share one session.
func etcdElection(name, settings string, ttl int) System {
	return System{
		Name: name, Settings: settings, Server: servers.Etcd,
		For:   "Leader election is a main purpose of etcd: followers watch and do not poll, and it survives the loss of a server. It is one more service to run.",
		Quick: []Fault{Resign},
		Phase: time.Duration(ttl) * time.Second / 3, Replaced: time.Duration(ttl) * time.Second,
		Cap:    time.Duration(ttl+30) * time.Second,
		Cannot: map[Fault]string{Terminate: noBackends},
		Never:  map[Fault]string{Restart: survives},
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{env.Server}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
			if err != nil {
				return err
			}
			return repeat(ctx, 100*time.Millisecond, out, func() (bool, error) { return etcdAttempt(ctx, client, ttl, env, out), nil })
		},
	}
}

// etcdAttempt runs one session. It reports whether the candidate has resigned.
func etcdAttempt(ctx context.Context, client *clientv3.Client, ttl int, env Env, out *Reporter) bool {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-session.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	var all sync.WaitGroup
	var done atomic.Bool
	for _, name := range env.elections() {
		election := concurrency.NewElection(session, "/"+name)
		all.Go(func() {
			if election.Campaign(ctx, env.ID) != nil {
				return
			}
			out.Leading(func() bool { return open(session.Done()) })
			if awaitResign(ctx, env, session.Done(), out) {
				done.Store(election.Resign(ctx) == nil)
			}
		})
	}
	all.Wait()
	return done.Load()
}
