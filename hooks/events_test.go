package hooks_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/pgelector/pgelector/hooks"
)

func TestEachClosedSetListsItsConstantsOnce(t *testing.T) {
	checkSet(t, "Reason", hooks.Reasons())
	checkSet(t, "Op", hooks.Ops())
	checkSet(t, "Outcome", hooks.Outcomes())
}

// checkSet compares a list with the constants in events.go.
func checkSet[S ~string](t *testing.T, name string, listed []S) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "events.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []S
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == name {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, S(value))
		}
		return true
	})
	if !slices.Equal(listed, declared) {
		t.Errorf("%ss lists %q, but %q are declared", name, listed, declared)
	}
}
