//go:build unix

package command_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
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
	r := invoke(t, at(shared.Get(t).DSN()), quick(name(t), "--log-json", "--log-level", "trace", "--hold", "400ms", "--", "sleep", "0.3")...)
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
		"elected":       {"waited_ms", 0, 30_000},
		"heartbeat":     {"took_ms", 0.001, 30_000},
		"command ended": {"lasted_ms", 300, 30_000},
		"demoted":       {"held_ms", 400, 30_000},
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
	r.logs(t, "database still away")
	r.signal(t, 15)
	r.ends(t, 128+15)
	line := regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\S+ \[|pgelector: )`)
	for text := range strings.Lines(r.errs.String()) {
		if !line.MatchString(text) {
			t.Errorf("not the start of a log line: %q", text)
		}
	}
}
