package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestAPageOnLoopbackIsServedToNoOtherName(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	ask := func(listens, host string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		localOnly(&net.TCPAddr{IP: net.ParseIP(listens), Port: 8080}, page).ServeHTTP(w, r)
		return w.Code
	}
	for _, loopback := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
		for _, host := range []string{"localhost:8080", "LOCALHOST", "localhost.", "app.localhost:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]", "10.0.0.1", ""} {
			if code := ask(loopback, host); code != http.StatusOK {
				t.Errorf("at %s, %q: got %d", loopback, host, code)
			}
		}
		for _, host := range []string{"evil.example:8080", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evillocalhost", "[evil.example]:8080"} {
			if code := ask(loopback, host); code != http.StatusForbidden {
				t.Errorf("at %s, %q: got %d", loopback, host, code)
			}
		}
	}
	for _, listens := range []string{"10.0.0.1", "::", "0.0.0.0"} { // others can reach the page anyway
		if code := ask(listens, "dashboard.example:8080"); code != http.StatusOK {
			t.Errorf("at %s: got %d", listens, code)
		}
	}
}
