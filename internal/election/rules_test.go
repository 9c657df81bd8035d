package election_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/internal/election"
)

// The three rules of the package comment, as far as the text of the code can show them.

func TestLocksTermsAndSessionsAreOpaque(t *testing.T) {
	for _, v := range []any{election.Lock{}, election.Term{}, election.Session{}, election.Terms{}} {
		of := reflect.TypeOf(v)
		for i := range of.NumField() {
			if of.Field(i).IsExported() {
				t.Errorf("%v has the exported field %s", of, of.Field(i).Name)
			}
		}
	}
}

// uses is where the package uses something: the functions that do, sorted.
func uses(t *testing.T) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]bool{}
	add := func(what, function string) {
		if got[what] == nil {
			got[what] = map[string]bool{}
		}
		got[what][function] = true
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, isFunc := d.(*ast.FuncDecl)
			if !isFunc || f.Body == nil {
				continue
			}
			var see func(n ast.Node) bool
			see = func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					add("."+n.Sel.Name, f.Name.Name)
					if of, ok := n.X.(*ast.SelectorExpr); ok {
						add(of.Sel.Name+"."+n.Sel.Name, f.Name.Name)
					}
					ast.Inspect(n.X, see)
					return false
				case *ast.CompositeLit:
					if id, ok := n.Type.(*ast.Ident); ok {
						add(id.Name+"{}", f.Name.Name)
					}
				case *ast.CallExpr:
					if id, ok := n.Fun.(*ast.Ident); ok {
						add(id.Name+"()", f.Name.Name)
						if id.Name == "new" {
							if of, ok := n.Args[0].(*ast.Ident); ok {
								add(of.Name+"{}", f.Name.Name)
							}
						}
					}
				case *ast.Ident:
					add(n.Name, f.Name.Name)
				}
				return true
			}
			ast.Inspect(f.Body, see)
		}
	}
	all := map[string][]string{}
	for what, functions := range got {
		all[what] = slices.Sorted(maps.Keys(functions))
	}
	return all
}

// TestOneFunctionGrantsRenewsAndReleases pins which functions of the package may do what.
func TestOneFunctionGrantsRenewsAndReleases(t *testing.T) {
	got := uses(t)
	for what, want := range map[string]string{
		"Lock{}":            "Try",
		"Term{}":            "newTerm",
		"Session{}":         "newSession",
		"newTerm()":         "elected",
		"newSession()":      "Lend",
		"confirmed":         "GiveUp begin confirm", // the state
		"led":               "Verify begin",
		".CheckInTime":      "CheckInTime Confirm Open", // of the session, for parts: it reads
		".Renew":            "put",
		".Acknowledge":      "",
		"put()":             "ask",
		".backend":          "Judge Reopen answered",
		".release":          "stepDown",
		".unlock":           "GiveUp release",
		"statements.Unlock": "unlock",
		".stepDown":         "elected",
		".keep":             "start",
		".Discard":          "discard",
		".GiveBack":         "end tryOn", // the connection's, and the session's
	} {
		if all := strings.Join(got[what], " "); all != want {
			t.Errorf("%s is used by %q, want %q", what, all, want)
		}
	}
}

// unlocking are the statements that release a lock of an election.
var unlocking = []string{"Unlock", "UnlockMany", "UnlockTo"}

// TestWhoSendsStatementsThatUnlock lists the packages that send a statement which releases a lock in the key space of
// elections. No type keeps a part from sending one, so each of these is an answerer, or is reviewed as one.
func TestWhoSendsStatementsThatUnlock(t *testing.T) {
	want := map[string]string{
		"internal/election": "Unlock",
		"internal/handover": "Unlock UnlockTo", // prepares Unlock
		"internal/deputy":   "Unlock",          // prepares it
		"internal/queue":    "Unlock",          // prepares it
		"internal/shared":   "UnlockMany",      // and Unlock, by the kernel's own answerer
	}
	got := map[string]string{}
	root := "../.."
	for _, top := range []string{"internal", "elector"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			for _, name := range sends(t, path, text) {
				if !slices.Contains(strings.Fields(got[dir]), name) {
					got[dir] = strings.Join(slices.Sorted(slices.Values(append(strings.Fields(got[dir]), name))), " ")
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("these packages send statements that unlock: %v, want %v", got, want)
	}
	t.Log(got)
}

// sends are the statements that unlock which a file names as those of package db: by a constant, by a method expression, or by
// a method of a value that the file gets from Queries.
func sends(t *testing.T, path string, text []byte) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(unlocking, s.Sel.Name) {
			return true
		}
		if isQueries(s.X) && !slices.Contains(names, s.Sel.Name) {
			names = append(names, s.Sel.Name)
		}
		return true
	})
	return names
}

// isQueries reports whether an expression is db, (*db.Queries), q, or a call of Queries or db.New: how this module writes them.
func isQueries(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "db" || x.Name == "q"
	case *ast.ParenExpr:
		return isQueries(x.X)
	case *ast.StarExpr:
		return isQueries(x.X)
	case *ast.SelectorExpr:
		return x.Sel.Name == "Queries" || x.Sel.Name == "q"
	case *ast.CallExpr:
		return isQueries(x.Fun) || isNew(x.Fun)
	}
	return false
}

func isNew(x ast.Expr) bool {
	s, ok := x.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "New" && isQueries(s.X)
}
