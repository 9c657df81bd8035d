// Command spine measures the path of one election, which is a place of its own, and fails if a
// feature enters it. spine.txt lists the files and the bounds.
//
//	go -C tools run ./spine
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed spine.txt
var listText string

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) error {
	plan, err := parse(listText)
	if err != nil {
		return err
	}
	spine, err := plan.files(root, plan.spine)
	if err != nil {
		return err
	}
	spine = slices.DeleteFunc(spine, func(path string) bool { return slices.Contains(plan.parts, nameOf(root, path)) })
	core, err := plan.files(root, plan.core)
	if err != nil {
		return err
	}
	var found findings
	lines, code := 0, 0
	folders := map[string]int{} // of the spine, and how many of its files are in each
	for _, path := range spine {
		folders[filepath.ToSlash(filepath.Dir(nameOf(root, path)))]++
	}
	for _, path := range spine {
		file, err := read(path)
		if err != nil {
			return err
		}
		lines, code = lines+file.lines, code+file.code
		found.words(file, plan)
		found.imports(file, folders)
	}
	found.bound("lines of code in the spine", code, plan.bounds["code"])
	found.bound("lines in the spine", lines, plan.bounds["lines"])
	found.bound("files in the spine", len(spine), plan.bounds["files"])
	methods, beside := map[string]int{}, map[string][2]int{} // beside: files and lines that are not of the spine, by folder
	for _, path := range core {
		file, err := read(path)
		if err != nil {
			return err
		}
		if !plan.long[file.name(root)] {
			found.bound("lines in "+file.name(root), file.lines, plan.bounds["file"])
		}
		if n := beside[filepath.Dir(file.name(root))]; !slices.Contains(spine, path) {
			beside[filepath.Dir(file.name(root))] = [2]int{n[0] + 1, n[1] + file.lines}
		}
		for name, n := range file.fields {
			if !plan.options[name] {
				found.bound("fields of "+name, n, plan.bounds["fields"])
			}
		}
		for name, n := range file.methods {
			methods[name] += n
		}
	}
	for name, n := range methods {
		found.bound("methods of "+name, n, plan.bounds["methods"])
	}
	fmt.Printf("the path: %d files, %d lines, %d of them code\n", len(spine), lines, code)
	for _, folder := range slices.Sorted(maps.Keys(beside)) {
		if n := beside[folder]; n[0] > 0 {
			fmt.Printf("%s: %d files, %d lines beside the path\n", folder, n[0], n[1])
		}
	}
	slices.Sort(found)
	return errors.Join(found.errors()...)
}

// A findings is what breaks a bound, or is not to be found in the spine.
type findings []string

func (f *findings) bound(what string, n, most int) {
	if n > most {
		*f = append(*f, fmt.Sprintf("spine: %d %s, at most %d", n, what, most))
	}
}

// words finds the words of features in the comments and in the names that a file declares.
func (f *findings) words(file *source, plan *plan) {
	for at, text := range file.texts {
		if word := plan.words.FindString(text); word != "" && !plan.exempt[file.base()+" "+strings.ToLower(word)] {
			*f = append(*f, fmt.Sprintf("spine: %s: the word %q", at, word))
		}
	}
}

// imports finds the packages below internal/ that a file imports and that have no file of the spine.
func (f *findings) imports(file *source, folders map[string]int) {
	for _, path := range file.imports {
		if at := strings.Index(path, "internal/"); at >= 0 && folders[path[at:]] == 0 {
			*f = append(*f, fmt.Sprintf("spine: %s imports the part %s", file.base(), path[at:]))
		}
	}
}

func (f findings) errors() (all []error) {
	for _, text := range slices.Compact(f) {
		all = append(all, errors.New(text))
	}
	return all
}

// A source is one Go file.
type source struct {
	path        string
	lines, code int
	imports     []string
	texts       map[string]string // comments and declared names, by their places
	fields      map[string]int    // of structs, by "package.Type"
	methods     map[string]int
}

func (s *source) base() string            { return filepath.Base(s.path) }
func (s *source) name(root string) string { return nameOf(root, s.path) }

func nameOf(root, path string) string {
	name, _ := filepath.Rel(root, path)
	return filepath.ToSlash(name)
}

func read(path string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, texts: map[string]string{}, fields: map[string]int{}, methods: map[string]int{}}
	s.count(string(text))
	at := func(pos token.Pos) string {
		p := fset.Position(pos)
		return fmt.Sprintf("%s:%d:%d", filepath.ToSlash(strings.TrimPrefix(p.Filename, "../")), p.Line, p.Column)
	}
	for _, group := range file.Comments {
		s.texts[at(group.Pos())] = group.Text()
	}
	for _, spec := range file.Imports {
		s.imports = append(s.imports, strings.Trim(spec.Path.Value, `"`))
	}
	pkg := file.Name.Name + "."
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if t, ok := n.Type.(*ast.StructType); ok {
				s.fields[pkg+n.Name.Name] = fieldsOf(t)
			}
			s.texts[at(n.Name.Pos())] = n.Name.Name
		case *ast.FuncDecl:
			s.texts[at(n.Name.Pos())] = n.Name.Name
			if n.Recv != nil {
				s.methods[pkg+receiver(n.Recv.List[0].Type)]++
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				s.texts[at(name.Pos())] = name.Name
			}
		case *ast.Field:
			for _, name := range n.Names {
				s.texts[at(name.Pos())] = name.Name
			}
		}
		return true
	})
	return s, nil
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

func fieldsOf(t *ast.StructType) (n int) {
	for _, f := range t.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

// A plan is what spine.txt says.
type plan struct {
	spine, core []string        // patterns of files
	parts       []string        // files that the patterns of the spine match, and that are none of it
	bounds      map[string]int  // by what they bound
	options     map[string]bool // structs that hold options
	long        map[string]bool // files that may be long
	exempt      map[string]bool // "file word" that may stand
	words       *regexp.Regexp
}

func parse(text string) (*plan, error) {
	p := &plan{bounds: map[string]int{}, options: map[string]bool{}, long: map[string]bool{}, exempt: map[string]bool{}}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		switch what {
		case "":
		case "spine":
			p.spine = append(p.spine, strings.Fields(rest)...)
		case "part":
			p.parts = append(p.parts, rest)
		case "core":
			p.core = append(p.core, strings.Fields(rest)...)
		case "most":
			var name string
			var n int
			if _, err := fmt.Sscan(rest, &name, &n); err != nil {
				return nil, fmt.Errorf("spine.txt: %q: %w", line, err)
			}
			p.bounds[name] = n
		case "options":
			p.options[rest] = true
		case "long":
			p.long[rest] = true
		case "exempt":
			p.exempt[rest] = true
		case "words":
			p.words = regexp.MustCompile(`(?i)\b\w*(` + strings.Join(strings.Fields(rest), "|") + `)\w*`)
		default:
			return nil, fmt.Errorf("spine.txt: %q: unknown", line)
		}
	}
	for _, name := range []string{"code", "lines", "files", "file", "fields", "methods"} {
		if p.bounds[name] == 0 {
			return nil, fmt.Errorf("spine.txt: no bound for %s", name)
		}
	}
	return p, nil
}

// files are the Go files of the patterns, without tests.
func (p *plan) files(root string, patterns []string) ([]string, error) {
	all := map[string]bool{}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("spine.txt: %s: no such file: %w", pattern, errors.Join(err, os.ErrNotExist))
		}
		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") {
				all[path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}
