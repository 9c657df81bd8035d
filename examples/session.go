package examples

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// Tenants leads an election for each tenant, thousands on one connection of each process. A process that comes
// takes no tenant from another one: package shard spreads them evenly.
type Tenants struct {
	session *elector.Session
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	work    func(ctx context.Context, tenant string, term *elector.Term) error

	mu     sync.Mutex
	ending map[string]func() // by tenant
}

// NewTenants makes the session. Close it after the last use. Each tenant's work runs on one process at a time, and
// runs again when it has returned, or its term was lost.
func NewTenants(pool *sql.DB, work func(ctx context.Context, tenant string, term *elector.Term) error, opts ...elector.SessionOption) (*Tenants, error) {
	session, err := elector.NewSession(pool, opts...)
	ctx, stop := context.WithCancel(context.Background())
	return &Tenants{session: session, ctx: ctx, stop: stop, work: work, ending: map[string]func(){}}, err
}

// Add makes this process a candidate for a tenant, until Remove or Close. It fails until a Remove of the tenant has returned.
func (t *Tenants) Add(tenant string) error {
	if t.ctx.Err() != nil {
		return elector.ErrStopped
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending[tenant] != nil {
		return nil
	}
	e, err := t.session.Elector("tenant/" + tenant)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.ctx)
	var ended sync.WaitGroup
	ended.Go(func() { t.run(ctx, e, tenant) })
	t.ending[tenant] = func() {
		cancel()
		ended.Wait()
		_ = e.Close(context.Background()) // else the session keeps it
	}
	return nil
}

func (t *Tenants) run(ctx context.Context, e *elector.Elector, tenant string) {
	for ctx.Err() == nil {
		err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error { return t.work(ctx, tenant, term) })
		if ctx.Err() == nil {
			slog.WarnContext(ctx, "tenant's work ended, will campaign again", "tenant", tenant, "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// Remove waits until the tenant's work has returned and another process may lead it.
func (t *Tenants) Remove(tenant string) {
	t.mu.Lock()
	end := t.ending[tenant]
	delete(t.ending, tenant)
	t.mu.Unlock()
	if end != nil {
		end()
	}
}

// Close ends the work of all tenants at once, and waits for it.
func (t *Tenants) Close(ctx context.Context) error {
	t.stop()
	return t.session.Close(ctx)
}
