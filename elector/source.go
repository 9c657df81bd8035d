package elector

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/internal/pace"
	"github.com/pgelector/pgelector/internal/session"
)

// A source is how an elector comes by its lock: by polling on borrowed
// connections, parked in the server, or together with other elections on a
// shared session. It serves one campaign at a time.
type source interface {
	// try makes one attempt. The grant has no session if another candidate holds
	// the lock.
	try(ctx context.Context) (session.Grant, error)
	// pause is how long to wait before the next try while another leads.
	pause() time.Duration
	// between is the longest time from one quick attempt to the next, after a failure and
	// by what the server's last answer made of the candidate.
	between(last standing, err error) time.Duration
	// rest ends a campaign that was not won.
	rest()
	// leave ends a term: the lock is released, or in doubt if err is not nil.
	leave(s *session.Session, err error)
	// over is told that all of a term is done, and the elector free for another.
	over()
	// refuses reports whether no retry will help after an error of try.
	refuses(err error) bool
	// distrust has the server checked anew before the next try.
	distrust()
}

// A poller tries the lock once per retry interval, and pins nothing in between.
type poller struct {
	server *session.Server
	e      *Elector
}

func (p *poller) try(ctx context.Context) (session.Grant, error) {
	grant, err := p.server.Try(ctx, p.e.key, p.e.announcer.seesLeader)
	if grant.Called {
		return p.e.answer(ctx, p.server)
	}
	return grant, err
}

func (p *poller) pause() time.Duration                { return pace.Jitter(p.e.retry) }
func (p *poller) rest()                               {}
func (p *poller) over()                               {}
func (p *poller) leave(s *session.Session, err error) { s.Close() }
func (p *poller) refuses(err error) bool              { return p.server.Refuses(err) }
func (p *poller) distrust()                           { p.server.Distrust() }

// courtesy is for how long a leader that has resigned keeps its connections.
// Measured: a hand-over takes some 2 ms, and with the closing at the same time 6.
const courtesy = 10 * time.Millisecond

// A parker waits for the lock inside the server.
type parker struct {
	poller
	parked *session.Parked
}

func (p *parker) try(ctx context.Context) (session.Grant, error) { return p.parked.Wait(ctx) }

// pause is nothing: the waiting is done in the server.
func (p *parker) pause() time.Duration { return 0 }
func (p *parker) rest()                { p.parked.Leave() }

// leave lets the next leader go first: to close connections, and to break off
// the watcher's wait, is work for the server too.
func (p *parker) leave(s *session.Session, err error) {
	if err == nil {
		pace.Sleep(s.Context(), courtesy)
	}
	s.Close()
}
