//go:build unix

package fence_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/pgelector/pgelector/fence"
)

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
