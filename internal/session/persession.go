package session

import (
	"context"
	"sync"
)

// A PerSession is what a part keeps of each session, until the session ends. The zero value is ready.
type PerSession[T any] struct{ of sync.Map }

// Of returns what is kept of the session. Any goroutine may call it.
func (p *PerSession[T]) Of(s *Session) *T {
	if kept, ok := p.of.Load(s); ok {
		return kept.(*T)
	}
	kept, before := p.of.LoadOrStore(s, new(T))
	if !before {
		context.AfterFunc(s.life.ctx, func() { p.of.Delete(s) })
	}
	return kept.(*T)
}
