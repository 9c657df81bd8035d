package wakeup

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pooled"
)

// A Sender sends notifications, on a connection of the pool that holds no lock: PostgreSQL
// lets one transaction that notifies commit at a time, and a stranger's may wait long for its
// synchronous standby.
type Sender struct {
	pool    *sql.DB
	channel string
	timeout time.Duration

	mu      sync.Mutex
	next    *notifications // that wait; nil if none does
	sending bool
}

// Notifications are sent in one statement.
type notifications struct {
	payloads []string
	done     chan struct{} // closed when they are sent, or given up
}

// NewSender makes a sender that gives up after timeout.
func NewSender(pool *sql.DB, channel string, timeout time.Duration) *Sender {
	return &Sender{pool: pool, channel: channel, timeout: timeout}
}

// Send sends a notification, and waits until that is done, patience is over or ctx ends. The
// sending goes on meanwhile.
func (s *Sender) Send(ctx context.Context, patience time.Duration, payload string) {
	select {
	case <-s.add(payload):
	case <-time.After(patience):
	case <-ctx.Done():
	}
}

func (s *Sender) add(payload string) (done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &notifications{done: make(chan struct{})}
	}
	s.next.payloads = append(s.next.payloads, payload)
	done = s.next.done
	if !s.sending {
		s.sending = true
		go backoff.Apart(s.sendAll)()
	}
	return done
}

func (s *Sender) sendAll() {
	for n := s.take(); n != nil; n = s.take() {
		_, _ = pooled.Write(context.Background(), s.pool, s.timeout, (*db.Queries).Notify, db.NotifyParams{Channel: s.channel, Payloads: election.Encode(n.payloads)})
		close(n.done)
	}
}

func (s *Sender) take() *notifications {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.next
	s.next, s.sending = nil, n != nil
	return n
}
