package fence

import (
	"context"
	"fmt"
	"sync"
)

// Memory is a [Store] in the memory of this process. It forgets everything
// when the process ends, and knows nothing of other processes: it fences a
// service of one instance, which loses with its memory what it serves. A service
// that writes to a database takes the token from [FromContext] into its
// transaction, by [Advance].
//
// It keeps a few words for each resource, for good: a service of unbounded
// resources should fence by something coarser than a path. The zero value is
// ready to use.
type Memory struct {
	mu        sync.Mutex
	resources map[string]*admission
}

// admission is what was let pass to one resource.
type admission struct {
	greatest int64
	inside   map[int64]int // how many requests, by their token
	left     chan struct{} // closed, and made anew, when the last of a token has left
}

// Enter implements [Store].
func (m *Memory) Enter(ctx context.Context, resource string, token int64) (leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, known := m.resources[resource]
	if !known {
		if m.resources == nil {
			m.resources = map[string]*admission{}
		}
		a = &admission{greatest: token, inside: map[int64]int{}, left: make(chan struct{})}
		m.resources[resource] = a
	}
	if token < a.greatest {
		return nil, &staleError{token: token, seen: a.greatest}
	}
	a.greatest = token // before the wait, so that no older request comes in meanwhile
	for a.olderThan(token) {
		left := a.left
		m.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
		}
		m.mu.Lock()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("fence: wait for the requests of older tokens: %w", context.Cause(ctx))
		case token < a.greatest: // overtaken
			return nil, &staleError{token: token, seen: a.greatest}
		}
	}
	a.inside[token]++
	return sync.OnceFunc(func() { m.leave(a, token) }), nil
}

func (m *Memory) leave(a *admission, token int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.inside[token]--; a.inside[token] == 0 {
		delete(a.inside, token)
		close(a.left)
		a.left = make(chan struct{})
	}
}

func (a *admission) olderThan(token int64) bool {
	for inside := range a.inside {
		if inside < token {
			return true
		}
	}
	return false
}

// staleError is ErrStale, with what was seen.
type staleError struct{ token, seen int64 }

func (e *staleError) Error() string {
	return fmt.Sprintf("%v (%d, seen %d)", ErrStale, e.token, e.seen)
}
func (e *staleError) Unwrap() error { return ErrStale }
