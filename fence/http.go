package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Header is the HTTP header that carries a token, in decimal.
const Header = "Fencing-Token"

// Transport returns a RoundTripper that adds the token of one term to every
// request and sends it by base, or by http.DefaultTransport if base is nil. Make
// one for each term: a client that outlives its term must go on to send the old
// token. A request that the server refuses as stale, by status 412, is returned
// as the error [ErrStale].
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
	fenced.Header.Set(Header, t.token)
	response, err := t.base.RoundTrip(fenced)
	if err != nil || response.StatusCode != http.StatusPreconditionFailed || response.Header.Get(Header) == "" {
		return response, err
	}
	_ = response.Body.Close()
	return nil, fmt.Errorf("%w (sent %s, seen %s)", ErrStale, t.token, response.Header.Get(Header))
}

// A Store remembers the greatest token of each resource.
type Store interface {
	// Enter admits a request, or returns an error that wraps ErrStale if a
	// greater token than this was admitted before. It returns only when every
	// request that was admitted with a smaller token has left, or with the cause of
	// ctx if that ends first. The caller calls leave once, when the request has been
	// dealt with. Enter is called concurrently.
	Enter(ctx context.Context, resource string, token int64) (leave func(), err error)
}

// Handler lets a request pass to next only if its token is not older than the
// greatest that was seen for the resource. Requests of one token are served
// concurrently; those of a newer one wait until all those of older ones have
// returned from next, so that no write of an old leader comes after one of a
// new leader, however slow next is.
//
// resource names what the request writes to; nil stands for the URL's path.
// store may be nil for a new [Memory]. The answers to what is not let pass are
//
//	412 Precondition Failed     the token is stale; the Fencing-Token header holds the greatest seen, if known
//	428 Precondition Required   there is no token
//	400 Bad Request             the header is not one integer
//	503 Service Unavailable     the store failed, or the request ended while it waited
//
// next finds the token by [FromContext], to pass it on.
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
			http.Error(w, "want one "+Header+" header, with an integer", status)
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

// FromContext returns the token of a request that [Handler] has let pass.
func FromContext(ctx context.Context) (token int64, ok bool) {
	token, ok = ctx.Value(contextKey{}).(int64)
	return token, ok
}

type contextKey struct{}

// tokenOf reads the header, or says by which status to refuse.
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
		http.Error(w, "the token could not be compared", http.StatusServiceUnavailable)
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
