package electortest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
)

// A parsed time is formatted to an equal time.
func FuzzATimeMeansWhatIsWrittenOfIt(f *testing.F) {
	for _, text := range []string{"0", "10000", "1500ms", "90s", "2min", "1h", "3d", "7us", " 5 s", "-1", "soon", "", "s", "99999999999999999999", "2147483647d", "24d", "25d", " ", "0    ", "\xd2\xd2 ", "\xec\xb1\xec"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseTime(text)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q is %v", text, d)
		}
		d = d.Truncate(time.Millisecond)
		again, err := parseTime(formatTime(d))
		if err != nil || again != d {
			t.Errorf("%q is %v, formatted %q, which is %v, %v", text, d, formatTime(d), again, err)
		}
	})
}

// A setting is either refused and changes nothing, or can be read back.
func FuzzASettingIsRefusedOrKept(f *testing.F) {
	for _, text := range []string{
		`[{"name":"idle_session_timeout","value":"10000"}]`, `[{"name":"statement_timeout","value":"soon"}]`,
		`[{"name":"pgelector.key","value":"7"},{"name":"application_name","value":"web-1"}]`,
		`[{"name":"nobody_knows","value":"1"}]`, `[]`, `{}`, `null`, ``, `[{"name":7}]`,
		`[{"nAme":"."},{}]`, `[{"":"","":""},A`, `{"":000`, `100000000`, "\"\xf2\xf2\"", "[{\"0\":\"0\",\"\xe1\":\"0\"},{\"0000\":\"0\"}]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x := &execution{backend: &backend{settings: settings{}}}
		n, err := x.apply(text, false, func(setting) bool { return true })
		if err != nil && n != 0 {
			t.Errorf("%d were set in spite of %v", n, err)
		}
		all, _ := decode[[]setting](text)
		if err == nil && int(n) != len(all) {
			t.Errorf("%d of %d were set", n, len(all))
		}
		x.settings.end(false)
		for _, one := range all {
			if now, known := x.settings.get(one.Name); known && now != defaults[one.Name] {
				t.Errorf("after a rollback %q is %q", one.Name, now)
			}
		}
	})
}

// Only the exact text of a statement is recognized.
func FuzzOnlyAWholeStatementIsUnderstood(f *testing.F) {
	for _, text := range []string{db.Ping, db.Ping + " ", "-- name: Ping :one\nSELECT 1", "-- name: ", "-- name: x", "SELECT 1", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, _ := find(text)
		_, whole := statements[text]
		if whole != (name != text && strings.Contains(text, name) && statements[text].name == name) {
			t.Errorf("%q is taken for %q", text, name)
		}
	})
}

// realOnly are statements of the command that need a real server: roles, privileges and
// limits. WithTx is no statement.
var realOnly = map[string]bool{"Capacity": true, "Privileges": true, "WithTx": true}

// A new statement of the library must be added here, and to a script of
// e2e/conformance/scripts.txt.
func TestEveryStatementIsSupportedOrNeedsARealServer(t *testing.T) {
	understood := map[string]bool{}
	for _, s := range statements {
		understood[s.name] = true
	}
	all := reflect.TypeFor[*db.Queries]()
	for i := range all.NumMethod() {
		if name := all.Method(i).Name; understood[name] == realOnly[name] {
			t.Errorf("%s: supported %v, needs a real server %v", name, understood[name], realOnly[name])
		}
	}
}
