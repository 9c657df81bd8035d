package electortest

import (
	"reflect"
	"testing"

	"github.com/pgelector/pgelector/db"
)

// realOnly are statements of the command that need a real server: roles, privileges and
// limits.
var realOnly = map[string]bool{"Capacity": true, "Privileges": true}

// A new statement of the library must be added here, and to a script of
// e2e/conformance/testdata.
func TestEveryStatementIsUnderstoodOrLeftToARealServer(t *testing.T) {
	understood := map[string]bool{}
	for _, s := range statements {
		understood[s.name] = true
	}
	all := reflect.TypeFor[db.Querier]()
	for i := range all.NumMethod() {
		if name := all.Method(i).Name; understood[name] == realOnly[name] {
			t.Errorf("%s: understood %v, left to a real server %v", name, understood[name], realOnly[name])
		}
	}
}
