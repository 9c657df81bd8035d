package fence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/pgelector/pgelector/fence"
	"go.uber.org/goleak"
)

func ask(h http.Handler, path string, tokens ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPut, path, nil)
	for _, token := range tokens {
		r.Header.Add(fence.Header, token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestTheHandlerRefusesRequestsWithAnOldOrInvalidToken(t *testing.T) {
	var passed []int64
	h := fence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token, ok := fence.FromContext(r.Context())
		if !ok {
			t.Error("no token in the context")
		}
		passed = append(passed, token)
	}), nil, nil)
	for i, step := range []struct {
		path   string
		tokens []string
		status int
		seen   string
	}{
		{"/a", nil, http.StatusPreconditionRequired, ""},
		{"/a", []string{""}, http.StatusBadRequest, ""},
		{"/a", []string{"seven"}, http.StatusBadRequest, ""},
		{"/a", []string{"9223372036854775808"}, http.StatusBadRequest, ""},
		{"/a", []string{"7", "8"}, http.StatusBadRequest, ""},
		{"/a", []string{"7"}, http.StatusOK, ""},
		{"/a", []string{"7"}, http.StatusOK, ""},
		{"/a", []string{"281474976710656"}, http.StatusOK, ""},
		{"/a", []string{"7"}, http.StatusPreconditionFailed, "281474976710656"},
		{"/b", []string{"6"}, http.StatusOK, ""},
	} {
		w := ask(h, step.path, step.tokens...)
		if w.Code != step.status || w.Header().Get(fence.Header) != step.seen {
			t.Errorf("step %d: %d, %v", i, w.Code, w.Header())
		}
	}
	if len(passed) != 4 {
		t.Errorf("%v passed", passed)
	}
}

func TestAWriteThatAffectsNoRowIsStaleAndAnyErrorIsReturned(t *testing.T) {
	oops := errors.New("oops")
	for _, c := range []struct {
		result    sql.Result
		err, want error
	}{
		{driver.RowsAffected(1), nil, nil},
		{driver.RowsAffected(0), nil, fence.ErrStale},
		{nil, oops, oops},
		{sqlmock.NewErrorResult(oops), nil, oops},
	} {
		if got := fence.Applied(c.result, c.err); !errors.Is(got, c.want) || errors.Is(got, fence.ErrStale) != (c.want == fence.ErrStale) {
			t.Errorf("%v, %v: got %v, want %v", c.result, c.err, got, c.want)
		}
	}
}

func TestTheCallerChoosesTheResourceAndTheStore(t *testing.T) {
	var store recording
	h := fence.Handler(http.NotFoundHandler(), func(r *http.Request) string { return r.Host }, &store)
	if w := ask(h, "http://lamp.example/a", "7"); w.Code != http.StatusNotFound || store.resource != "lamp.example" || store.token != 7 || !store.left {
		t.Errorf("%d, %+v", w.Code, store)
	}
	store.err = fence.ErrStale
	if w := ask(h, "/a", "7"); w.Code != http.StatusPreconditionFailed || w.Header().Get(fence.Header) == "" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
	store.err = errors.New("down")
	if w := ask(h, "/a", "7"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d", w.Code)
	}
}

type recording struct {
	resource string
	token    int64
	left     bool
	err      error
}

func (s *recording) Enter(_ context.Context, resource string, token int64) (func(), error) {
	s.resource, s.token = resource, token
	return func() { s.left = true }, s.err
}

// An admitted slow write of an old leader comes before the first write of the new one.
func TestANewerTokenWaitsForTheRequestsOfOlderOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m fence.Memory
		var order []string
		enter := func(token int64) func() {
			leave, err := m.Enter(t.Context(), "lamp", token)
			check(t, err)
			return leave
		}
		first, second := enter(7), enter(7) // at the same time
		go func() {
			leave := enter(8)
			order = append(order, "new")
			leave()
		}()
		synctest.Wait()
		if _, err := m.Enter(t.Context(), "lamp", 7); !errors.Is(err, fence.ErrStale) {
			t.Errorf("an older request while a newer one waits: %v", err)
		}
		order = append(order, "old")
		first()
		first() // counts once
		synctest.Wait()
		order = append(order, "old")
		second()
		synctest.Wait()
		if len(order) != 3 || order[2] != "new" {
			t.Errorf("the order was %q", order)
		}
	})
}

func TestAWaitingRequestIsCancelledOrOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m fence.Memory
		leave, err := m.Enter(t.Context(), "lamp", 7)
		check(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 2)
		go func() { _, err := m.Enter(ctx, "lamp", 8); waits <- err }()
		synctest.Wait()
		cancel()
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() { _, err := m.Enter(t.Context(), "lamp", 8); waits <- err }()
		synctest.Wait()
		go func() {
			leave, err := m.Enter(t.Context(), "lamp", 9)
			check(t, err)
			leave()
			waits <- nil
		}()
		synctest.Wait()
		leave()
		var stale, admitted int
		for range 2 {
			if err := <-waits; errors.Is(err, fence.ErrStale) {
				stale++
			} else if err == nil {
				admitted++
			}
		}
		if stale != 1 || admitted != 1 {
			t.Errorf("%d stale, %d admitted", stale, admitted)
		}
	})
}

// Over real connections: tokens never fall in the order of the handler's calls, and requests
// of different tokens never overlap.
func TestConcurrentRequestsAreServedInTheOrderOfTheirTokens(t *testing.T) {
	var mu sync.Mutex
	var served []int64
	inside := map[int64]int{}
	service := httptest.NewServer(fence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token, _ := fence.FromContext(r.Context())
		mu.Lock()
		inside[token]++
		if len(inside) > 1 {
			t.Errorf("tokens %v are served at once", inside)
		}
		served = append(served, token)
		mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		if inside[token]--; inside[token] == 0 {
			delete(inside, token)
		}
	}), nil, nil))
	defer service.Close()
	base := &http.Transport{MaxIdleConnsPerHost: 16}
	defer base.CloseIdleConnections()
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			for j := range 50 {
				token := int64(j*3 + (i*5+j*7)%13)
				client := http.Client{Transport: fence.Transport(base, token)}
				response, err := client.Post(service.URL+"/lamp", "", nil)
				if errors.Is(err, fence.ErrStale) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
	writers.Wait()
	for i := 1; i < len(served); i++ {
		if served[i] < served[i-1] {
			t.Fatalf("token %d was served after %d", served[i], served[i-1])
		}
	}
	if len(served) == 0 {
		t.Error("nothing was served")
	}
}

func TestTheTransportDoesNotChangeTheRequestOrOtherAnswers(t *testing.T) {
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		if got := r.Header.Get(fence.Header); got != "7" {
			t.Errorf("sent %q", got)
		}
		return &http.Response{StatusCode: status, Body: http.NoBody, Header: http.Header{}}, nil
	})
	for _, status := range []int{200, 409, 412} { // a 412 without the header has another cause
		r := httptest.NewRequest(http.MethodPut, "/?status="+strconv.Itoa(status), nil)
		response, err := fence.Transport(base, 7).RoundTrip(r)
		if err != nil || response.StatusCode != status || r.Header.Get(fence.Header) != "" {
			t.Errorf("%v, %v, %v", response, err, r.Header)
		}
	}
	bare := &http.Request{Method: http.MethodPut, URL: &url.URL{Path: "/", RawQuery: "status=200"}}
	if response, err := fence.Transport(base, 7).RoundTrip(bare); err != nil || bare.Header != nil {
		t.Errorf("%v, %v, %v", response, err, bare.Header)
	}
	oops := errors.New("oops")
	failing := roundTripper(func(*http.Request) (*http.Response, error) { return nil, oops })
	if _, err := fence.Transport(failing, 7).RoundTrip(httptest.NewRequest(http.MethodPut, "/", nil)); !errors.Is(err, oops) {
		t.Error(err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An admitted request has exactly one token, that of the header.
func FuzzTheHandlerPassesOneTokenOrNone(f *testing.F) {
	for _, header := range []string{"1", "-1", "0x10", "9223372036854775807", "9223372036854775808", "1 ", "1,2", "", "+7", "007", "१"} {
		f.Add(header, "", false)
	}
	f.Add("1", "2", true)
	f.Add("A", "", true)
	f.Fuzz(func(t *testing.T, first, second string, twice bool) {
		var got *int64
		h := fence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			token, _ := fence.FromContext(r.Context())
			got = &token
		}), nil, nil)
		tokens := []string{first}
		if twice {
			tokens = append(tokens, second)
		}
		status := ask(h, "/", tokens...).Code
		want, err := strconv.ParseInt(first, 10, 64)
		switch passes := err == nil && !twice; {
		case passes && (got == nil || *got != want):
			t.Errorf("%q: got %v, status %d", tokens, got, status)
		case !passes && (got != nil || status != http.StatusBadRequest):
			t.Errorf("%q: passed %v, status %d", tokens, got, status)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
