package systems

import (
	"context"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/pgelector/pgelector/bench/internal/servers"
)

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
