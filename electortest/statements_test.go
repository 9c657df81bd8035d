package electortest

import (
	"reflect"
	"testing"

	"github.com/pgelector/pgelector/db"
)

// realOnly are statements of the command's, about what this server has not: roles,
// rights and the limits of a machine.
var realOnly = map[string]bool{"Capacity": true, "Privileges": true}

// A statement that is new to the library must be new here, and in a script of
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
