package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// Header is the HTTP header that carries a token, in decimal.
const Header = "Fencing-Token"

// Transport returns a RoundTripper that adds a term's token to every request and sends it
// with base, or with http.DefaultTransport if base is nil. Make one for each term: a client
// that outlives its term must keep sending the old token. If the server refuses the token
// (status 412), RoundTrip returns an error that wraps [ErrStale].
func Transport(base http.RoundTripper, token int64) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base, strconv.FormatInt(token, 10)}
}

type transport struct {
	base  http.RoundTripper
	token string
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	fenced := r.Clone(r.Context()) // a RoundTripper must not modify the request
	if fenced.Header == nil {
		fenced.Header = http.Header{}
	}
	fenced.Header.Set(Header, t.token)
	response, err := t.base.RoundTrip(fenced)
	if err != nil || response.StatusCode != http.StatusPreconditionFailed || response.Header.Get(Header) == "" {
		return response, err
	}
	_ = response.Body.Close()
	return nil, fmt.Errorf("%w (sent %s, seen %s)", ErrStale, t.token, response.Header.Get(Header))
}

// A Store keeps the largest token of each resource.
type Store interface {
	// Enter admits a request. If a larger token was admitted before, the error wraps
	// ErrStale. Enter waits until every request with a smaller token has left. If ctx
	// ends first, the error wraps its cause. The caller calls leave once, when the
	// request is done. Enter is called concurrently.
	Enter(ctx context.Context, resource string, token int64) (leave func(), err error)
}

// Handler passes a request to next only if the store has seen no larger token for the
// resource. Requests with the same token run concurrently. Requests with a newer token
// wait until next has returned from all those with older tokens, so no write of an old
// leader follows one of a new leader.
//
// resource returns what the request writes to; nil means the URL's path. A nil store means
// a new [Memory]. Refused requests get
//
//	412 Precondition Failed     the token is stale; the Fencing-Token header holds the largest seen, if known
//	428 Precondition Required   there is no token
//	400 Bad Request             the header is not one integer
//	503 Service Unavailable     the store failed, or the request was cancelled while it waited
//
// next gets the token from [FromContext].
func Handler(next http.Handler, resource func(*http.Request) string, store Store) http.Handler {
	if resource == nil {
		resource = func(r *http.Request) string { return r.URL.Path }
	}
	if store == nil {
		store = new(Memory)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, status := tokenOf(r)
		if status != 0 {
			http.Error(w, "want one "+Header+" header with an integer", status)
			return
		}
		leave, err := store.Enter(r.Context(), resource(r), token)
		if err != nil {
			refuse(w, err)
			return
		}
		defer leave()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, token)))
	})
}

// FromContext returns the token of a request that [Handler] has admitted.
func FromContext(ctx context.Context) (token int64, ok bool) {
	token, ok = ctx.Value(contextKey{}).(int64)
	return token, ok
}

type contextKey struct{}

// tokenOf returns the token in the header, or the status of the refusal.
func tokenOf(r *http.Request) (token int64, status int) {
	values := r.Header.Values(Header)
	switch len(values) {
	case 0:
		return 0, http.StatusPreconditionRequired
	case 1:
		if token, err := strconv.ParseInt(values[0], 10, 64); err == nil {
			return token, 0
		}
	}
	return 0, http.StatusBadRequest
}

func refuse(w http.ResponseWriter, err error) {
	if !errors.Is(err, ErrStale) {
		http.Error(w, "the token could not be checked", http.StatusServiceUnavailable)
		return
	}
	seen := "unknown"
	var stale *staleError
	if errors.As(err, &stale) {
		seen = strconv.FormatInt(stale.seen, 10)
	}
	w.Header().Set(Header, seen)
	http.Error(w, ErrStale.Error(), http.StatusPreconditionFailed)
}

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
