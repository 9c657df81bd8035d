package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A source is one Go file without tests.
type source struct {
	name        string
	lines, code int
	file        *ast.File
}

func readAll(folder string) (all []*source, err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s := &source{name: filepath.Base(path)}
		if s.file, err = parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		s.count(string(text))
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("core: %s has no Go files", folder)
	}
	return all, nil
}

// count counts lines, and those with code.
func (s *source) count(text string) {
	for line := range strings.Lines(text) {
		s.lines++
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			s.code++
		}
	}
}

// A shape is what a type has.
type shape struct {
	fields, methods int
	embeds          []string // of shapes
}

// shapes are those of the core's types, by "package.Type". Names of the core's packages are unique.
type shapes map[string]*shape

func (all shapes) of(name string) *shape {
	if all[name] == nil {
		all[name] = &shape{}
	}
	return all[name]
}

func (all shapes) add(s *source) {
	pkg := s.file.Name.Name + "."
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				all.of(pkg+nameOf(n.Recv.List[0].Type)).methods++
			}
		case *ast.TypeSpec:
			of := all.of(pkg + n.Name.Name)
			switch t := n.Type.(type) {
			case *ast.StructType:
				for _, f := range t.Fields.List {
					if of.fields += max(1, len(f.Names)); len(f.Names) == 0 {
						of.embeds = append(of.embeds, qualified(pkg, f.Type))
					}
				}
			case *ast.InterfaceType:
				for _, m := range t.Methods.List {
					if of.methods += len(m.Names); len(m.Names) == 0 {
						of.embeds = append(of.embeds, qualified(pkg, m.Type))
					}
				}
			}
		}
		return true
	})
}

// nameOf is the name of a type, without pointer and type parameters.
func nameOf(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return nameOf(t.X)
	case *ast.IndexExpr:
		return nameOf(t.X)
	case *ast.SelectorExpr:
		return nameOf(t.X) + "." + t.Sel.Name
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

func qualified(pkg string, t ast.Expr) string {
	if name := nameOf(t); strings.Contains(name, ".") {
		return name
	}
	return pkg + nameOf(t)
}

// reach is the fields and methods of a type, with those of what it embeds.
func (all shapes) reach(name string) (fields, methods int) {
	of := all[name]
	if of == nil {
		return 0, 0 // of another module, or of an alias
	}
	fields, methods = of.fields, of.methods
	for _, embedded := range of.embeds {
		f, m := all.reach(embedded)
		fields, methods = fields+f, methods+m
	}
	return fields, methods
}

func (all shapes) print(found *findings) {
	fmt.Println("\nthe largest types, with what they embed:")
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		fa, ma := all.reach(a)
		fb, mb := all.reach(b)
		return (fb + mb) - (fa + ma)
	})
	for i, name := range names {
		fields, methods := all.reach(name)
		if i < 8 {
			fmt.Printf("  %-30s %3d fields %3d methods\n", name, fields, methods)
		}
		most, isWide := wide[name]
		if !isWide {
			most = reach{mostFields, mostMethods}
		}
		found.bound("fields of "+name, fields, most.fields)
		found.bound("methods of "+name, methods, most.methods)
	}
}
