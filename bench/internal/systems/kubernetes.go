package systems

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/pgelector/pgelector/bench/internal/servers"
)

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
