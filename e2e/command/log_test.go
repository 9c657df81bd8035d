//go:build unix

package command_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// logged returns the lines of --log-json, by message.
func logged(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	lines := map[string]map[string]any{}
	for line := range strings.Lines(text) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("not JSON: %v: %s", err, line)
			continue
		}
		message, _ := fields["@message"].(string)
		lines[message] = fields
	}
	return lines
}

func TestTheJSONLogKeepsEveryDigitAndNamesItsUnits(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/command.md")
	check(t, err)
	_, logs, _ := strings.Cut(string(page), "\n### Logs\n")
	logs, _, _ = strings.Cut(logs, "\n##")
	known := map[string]bool{}
	for _, field := range regexp.MustCompile("`([a-z@_]+)`").FindAllStringSubmatch(logs, -1) {
		known[field[1]] = true
	}
	r := invoke(t, at(shared.Get(t).DSN()), quick(name(t), "--log-json", "--log-level", "trace", "--hold", "2s", "--", "sleep", "0.3")...)
	r.want(t, exit.OK)
	lines := logged(t, r.err)
	for message, fields := range lines {
		for field, value := range fields {
			if !known[field] {
				t.Errorf("%s has the field %q, which docs/command.md does not list", message, field)
			}
			if n, ok := value.(float64); ok && math.Abs(n) > 1<<53 {
				t.Errorf("%s has %q = %v, a number that loses digits", message, field, n)
			}
		}
	}
	for message, lasted := range map[string]struct {
		field       string
		least, most float64
	}{
		"elected":       {"campaigned_ms", 0, 30_000},
		"heartbeat":     {"took_ms", 0.001, 30_000},
		"command ended": {"lasted_ms", 300, 30_000},
		"resigned":      {"held_ms", 2000, 30_000},
	} {
		if got, ok := lines[message][lasted.field].(float64); !ok || got < lasted.least || got > lasted.most {
			t.Errorf("%s: %s is %v, want %v to %v: %v", message, lasted.field, lines[message][lasted.field], lasted.least, lasted.most, lines[message])
		}
	}
	if got, want := lines["elected"]["key"], fmt.Sprint(keyOf(name(t))); got != want {
		t.Errorf("the key is %v, want the string %q", got, want)
	}
	if elected, started := lines["elected"]["token"], lines["command started"]["token"]; elected != started || fmt.Sprintf("%T", elected) != "string" {
		t.Errorf("the token is %v (%[1]T) and %v, want two strings", elected, started)
	}
}

// A last line that is not JSON would break a program that reads the log.
func TestTheLastLineOfTheJSONLogIsJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  []string
		args []string
		code int
		says string
	}{
		{at("postgres://nobody@127.0.0.1:1/"), quick("x", "--log-json", "--log-level", "off", "--if-free", "--", "true"), exit.Connect, "could not connect"},
		{nil, quick("x", "--log-json", "--retry", "1ms", "--", "true"), exit.Usage, "--retry 1ms"},
		{nil, []string{"run", "--log-json", "--no-such-flag"}, exit.Usage, "unknown flag"},
	} {
		r := invoke(t, tt.env, tt.args...)
		r.want(t, tt.code, tt.says)
		for _, fields := range logged(t, r.err) {
			if fields["@level"] != "error" || fields["exit_status"] != float64(tt.code) {
				t.Errorf("%v: got %v", tt.args, fields)
			}
		}
	}
}

// The errors of pgx have one line per address.
func TestAnErrorIsLoggedOnOneLine(t *testing.T) {
	t.Parallel()
	r := launch(t, at("postgres://nobody@127.0.0.1:1/x"), quick("x", "--log-level", "trace", "--", "true")...)
	r.logs(t, "attempt failed again")
	r.stops(t)
	line := regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\S+ \[|pgelector: )`)
	for text := range strings.Lines(r.errs.String()) {
		if !line.MatchString(text) {
			t.Errorf("not the start of a log line: %q", text)
		}
	}
}

func TestHTTPReportsTheLeaderToALoadBalancer(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	release := occupy(t, shared.Get(t).DSN(), name(t))
	r := follow(t, shared.Get(t).DSN(), name(t), "me", "--http", address)
	r.logs(t, "leader changed")
	expectGet(t, address, "/healthz", http.StatusOK, `"status":"healthy"`)
	expectGet(t, address, "/readyz", http.StatusOK, `"status":"healthy"`)
	expectGet(t, address, "/leader", http.StatusServiceUnavailable, `"leading":false`)
	expectGet(t, address, "/metrics", http.StatusOK, fmt.Sprintf("pgelector_leader{election=%q} 0\n", name(t)))
	release()
	r.says(t, "ready")
	expectGet(t, address, "/leader", http.StatusOK, `"leading":true`)
	expectGet(t, address, "/readyz", http.StatusOK, `"leader":"me"`)
	expectGet(t, address, "/metrics", http.StatusOK, fmt.Sprintf("pgelector_leader{election=%q} 1\n", name(t)))
	expectGet(t, address, "/metrics", http.StatusOK, "process_start_time_seconds ")
	var l struct{ Token, Leader string }
	check(t, json.Unmarshal([]byte(get(t, address, "/leader").body), &l))
	if token, err := strconv.ParseInt(l.Token, 10, 64); err != nil || token <= 0 || l.Leader != "me" {
		t.Errorf("got %+v", l)
	}
	invoke(t, at(shared.Get(t).DSN()), quick(name(t), "--http", address, "--", "true")...).want(t, exit.Failure, "--http")
	r.stops(t)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := sandbox.FreePort()
	check(t, err)
	return net.JoinHostPort(sandbox.Loopback, strconv.Itoa(port))
}

type reply struct {
	status int
	body   string
}

func get(t *testing.T, address, path string) reply {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + address + path)
	check(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(t, err)
	return reply{response.StatusCode, string(body)}
}

func expectGet(t *testing.T, address, path string, status int, text string) {
	t.Helper()
	if got := get(t, address, path); got.status != status || !strings.Contains(got.body, text) {
		t.Errorf("%s: got %d %q, want %d with %q", path, got.status, got.body, status, text)
	}
}
