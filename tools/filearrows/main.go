// Command filearrows fails if two files of a package use each other, directly or through
// other files. Methods of one type may be in several files and use each other.
//
//	go -C tools run ./filearrows ../internal/lease ../internal/pin
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	exit := 0
	for _, folder := range os.Args[1:] {
		cycles, err := check(folder)
		if err != nil {
			cycles, exit = append(cycles, err.Error()), 2
		}
		for _, cycle := range cycles {
			fmt.Fprintln(os.Stderr, "filearrows:", cycle)
			exit = max(exit, 1)
		}
	}
	os.Exit(exit)
}

// check returns the uses of one file by another that are part of a cycle.
func check(folder string) (cycles []string, err error) {
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no Go files", folder)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: none{}, Error: func(error) {}} // only the package's own names matter
	pkg, _ := config.Check(folder, fset, files, info)
	all := uses{}
	for _, file := range files {
		for _, decl := range file.Decls {
			all.add(fset, pkg, info, decl)
		}
	}
	for _, from := range slices.Sorted(maps.Keys(all)) {
		for _, to := range slices.Sorted(maps.Keys(all[from])) {
			if all.reaches(to, from, map[string]bool{}) {
				cycles = append(cycles, fmt.Sprintf("%s uses %s of %s, which uses it", from, strings.Join(slices.Sorted(maps.Keys(all[from][to])), ", "), to))
			}
		}
	}
	return cycles, nil
}

// none is an importer that fails.
type none struct{}

func (none) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// uses maps a file to the files that it uses, and these to the names that it uses.
type uses map[string]map[string]map[string]bool

// add adds the names that a declaration uses.
func (u uses) add(fset *token.FileSet, pkg *types.Package, info *types.Info, decl ast.Decl) {
	file := func(pos token.Pos) string { return fset.Position(pos).Filename }
	own := ""
	if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
		own = strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*")
	}
	from := file(decl.Pos())
	ast.Inspect(decl, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		used := info.Uses[id]
		if used == nil || used.Pkg() != pkg || file(used.Pos()) == from || used.Name() == own || ownerOf(used) == own && own != "" {
			return true
		}
		if used.Parent() != pkg.Scope() && ownerOf(used) == "" {
			return true // a field, or a name within a function
		}
		if u[from] == nil {
			u[from] = map[string]map[string]bool{}
		}
		if u[from][file(used.Pos())] == nil {
			u[from][file(used.Pos())] = map[string]bool{}
		}
		u[from][file(used.Pos())][used.Name()] = true
		return true
	})
}

// ownerOf returns the type of a method, or "" if used is not a method.
func ownerOf(used types.Object) string {
	method, ok := used.(*types.Func)
	if !ok || method.Signature().Recv() == nil {
		return ""
	}
	owner := method.Signature().Recv().Type()
	if pointer, ok := owner.(*types.Pointer); ok {
		owner = pointer.Elem()
	}
	if named, ok := owner.(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

// reaches reports whether a file uses another, directly or through others.
func (u uses) reaches(from, to string, seen map[string]bool) bool {
	seen[from] = true
	for next := range u[from] {
		if next == to || !seen[next] && u.reaches(next, to, seen) {
			return true
		}
	}
	return false
}
