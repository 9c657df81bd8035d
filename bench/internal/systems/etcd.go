package systems

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdElection is etcd's own election recipe. All elections of a candidate share one session, as they may.
func etcdElection(name, settings string, ttl int) System {
	return System{
		Name: name, Settings: settings, Etcd: true,
		For:   "Leader election is what etcd is for: followers watch instead of asking, and it survives the loss of a server. It is one more thing to run.",
		Quick: []Fault{Resign},
		Phase: time.Duration(ttl) * time.Second / 3,
		Cap:   time.Duration(ttl+30) * time.Second,
		Cannot: map[Fault]string{
			Terminate: "etcd has no backends to end, and a lease outlives its connection",
		},
		Never: map[Fault]string{Restart: survives},
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{env.Etcd}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
			if err != nil {
				return err
			}
			out.Emit(Ready)
			for ctx.Err() == nil {
				if etcdOnce(ctx, client, ttl, env, out) {
					return nil
				}
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		},
	}
}

// etcdOnce is the life of one session. It is done after a resignation.
func etcdOnce(ctx context.Context, client *clientv3.Client, ttl int, env Env, out *Reporter) bool {
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
	for _, name := range names(env) {
		election := concurrency.NewElection(session, "/"+name)
		all.Go(func() {
			if election.Campaign(ctx, env.ID) != nil {
				return
			}
			out.Leading(func() bool { return alive(session) })
			if resigned(ctx, env, session.Done(), out) {
				done.Store(election.Resign(ctx) == nil)
			}
		})
	}
	all.Wait()
	return done.Load()
}

func alive(session *concurrency.Session) bool {
	select {
	case <-session.Done():
		return false
	default:
		return true
	}
}
