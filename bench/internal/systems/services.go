package systems

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

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

// consulLock is the lock of Consul's Go client, which a session holds.
func consulLock(name, settings string, ttl, delay time.Duration) System {
	return System{
		Name: name, Settings: settings, Server: servers.Consul,
		For:      "Programs that use Consul already. Followers watch and do not poll, and a cluster survives the loss of a server. A silent leader is replaced late: Consul waits for twice the TTL.",
		Quick:    []Fault{Resign},
		Phase:    ttl / 2,
		Replaced: 2*ttl + delay,
		Cap:      3*ttl + 2*delay + 10*time.Second,
		Cannot:   map[Fault]string{Terminate: noBackends},
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			client, err := api.NewClient(&api.Config{Address: env.Server})
			if err != nil {
				return err
			}
			options := api.LockOptions{Key: env.Election, Value: []byte(env.ID), SessionTTL: ttl.String(), LockDelay: delay}
			return repeat(ctx, 100*time.Millisecond, out, func() (bool, error) { return consulAttempt(ctx, client, options, env, out) })
		},
	}
}

func consulAttempt(ctx context.Context, client *api.Client, options api.LockOptions, env Env, out *Reporter) (done bool, err error) {
	lock, err := client.LockOpts(&options)
	if err != nil {
		return true, err
	}
	lost, err := lock.Lock(ctx.Done())
	if err != nil || lost == nil {
		return false, nil
	}
	out.Leading(func() bool { return open(lost) })
	done = awaitResign(ctx, env, lost, out)
	_ = lock.Unlock() // after a loss, it only ends the session
	return done, nil
}

// kubernetesLease is the leader election of client-go, with a Lease of Kubernetes.
func kubernetesLease(name string, lease, deadline, retry time.Duration) System {
	never := map[Fault]string{}
	if deadline >= 10*time.Second { // the server is back sooner
		never[Restart] = survives
	}
	return System{
		Name: name, Settings: fmt.Sprintf("LeaseDuration %v, RenewDeadline %v, RetryPeriod %v, ReleaseOnCancel", lease, deadline, retry),
		Server:   servers.Kubernetes,
		For:      "Programs that run in Kubernetes and use its API anyway. The lease survives a broken connection. Followers poll.",
		Phase:    retry,
		Replaced: lease + retry,
		Cap:      lease + 30*time.Second,
		Cannot:   map[Fault]string{Terminate: noBackends},
		Never:    never,
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			klog.SetSlogLogger(slog.New(slog.DiscardHandler))
			server := rest.Config{Host: "https://" + env.Server, BearerToken: servers.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
			lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "default", env.Election,
				resourcelock.ResourceLockConfig{Identity: env.ID}, &server, deadline)
			if err != nil {
				return err
			}
			config := leaderelection.LeaderElectionConfig{Lock: lock, LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry, ReleaseOnCancel: true}
			return repeat(ctx, 0, out, func() (bool, error) { return leaseAttempt(ctx, config, env, out) })
		},
	}
}

func leaseAttempt(ctx context.Context, config leaderelection.LeaderElectionConfig, env Env, out *Reporter) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Bool
	var elector *leaderelection.LeaderElector
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(term context.Context) {
			out.Leading(func() bool { return term.Err() == nil && elector.IsLeader() })
			if awaitResign(term, env, nil, out) {
				done.Store(true)
				cancel()
			}
		},
		OnStoppedLeading: func() {},
	}
	var err error
	if elector, err = leaderelection.NewLeaderElector(config); err != nil {
		return true, err
	}
	elector.Run(ctx)
	return done.Load(), nil
}
