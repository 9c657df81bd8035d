package fence

import (
	"context"
	"fmt"
	"sync"
)

// Memory is a [Store] in the memory of this process. It suits a service with one instance
// and no other storage. A service that writes to a database should pass the token from
// [FromContext] to [Advance] in its transaction.
//
// Memory never forgets a resource: with unbounded resources, use something coarser than
// the path. The zero value is ready to use.
type Memory struct {
	mu        sync.Mutex
	resources map[string]*admission
}

// admission counts the requests to one resource.
type admission struct {
	largest int64
	inside  map[int64]int // running requests, by token
	left    chan struct{} // closed and replaced when the last request of a token leaves
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
		a = &admission{largest: token, inside: map[int64]int{}, left: make(chan struct{})}
		m.resources[resource] = a
	}
	if token < a.largest {
		return nil, &staleError{token: token, seen: a.largest}
	}
	a.largest = token // before the wait, so that no older request enters meanwhile
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
			return nil, fmt.Errorf("fence: wait for requests with older tokens: %w", context.Cause(ctx))
		case token < a.largest:
			return nil, &staleError{token: token, seen: a.largest}
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

// staleError wraps ErrStale.
type staleError struct{ token, seen int64 }

func (e *staleError) Error() string {
	return fmt.Sprintf("%v (%d, seen %d)", ErrStale, e.token, e.seen)
}
func (e *staleError) Unwrap() error { return ErrStale }
