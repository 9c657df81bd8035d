package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one change of the library's code.
type mutant struct {
	number int    // selects it at run time
	file   string // relative to the module
	line   int
	change string // what it changes
	code   string
	nth    int // its index among the mutants of the file that are equal except for the line
}

// key identifies a mutant, also when lines have moved.
func (m mutant) key() string {
	return strings.Join([]string{path.Dir(m.file), path.Base(m.file), m.change, m.code, fmt.Sprint(m.nth)}, "\t")
}

//go:embed switch.go.txt
var switchSource []byte

// installSwitch adds the package that the planted code calls.
func installSwitch(dir string, mutants int) error {
	dir = filepath.Join(dir, "internal", "mutants")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	source := bytes.Replace(switchSource, []byte("[MUTANTS]"), fmt.Appendf(nil, "[%d]", mutants+1), 1)
	return os.WriteFile(filepath.Join(dir, "mutants.go"), source, 0o644)
}

// plant rewrites a file so that each of its mutants can be selected at run time. The first
// mutant gets the given number.
func plant(file string, source []byte, number int) (planted []byte, mutants []mutant, err error) {
	p := &planter{files: token.NewFileSet(), file: file, source: source, next: number, same: map[string]int{}}
	tree, err := parser.ParseFile(p.files, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		p.visit(n)
		return true
	})
	if len(p.mutants) == 0 {
		return source, nil, nil
	}
	p.insert(tree.Name.End(), "\nimport \"github.com/pgelector/pgelector/internal/mutants\"\n", 0)
	return p.write(), p.mutants, nil
}

// A planter collects the insertions into a file.
type planter struct {
	files   *token.FileSet
	file    string
	source  []byte
	next    int
	same    map[string]int
	mutants []mutant
	inserts []insert
}

type insert struct {
	at    int
	text  string
	order int // among those at the same place
}

func (p *planter) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		p.condition(n.Cond, true)
	case *ast.ForStmt:
		if n.Cond != nil {
			p.condition(n.Cond, false) // an endless loop is always noticed
		}
	case *ast.SwitchStmt:
		if n.Tag != nil {
			break
		}
		for _, c := range n.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				p.condition(e, true)
			}
		}
	case *ast.ReturnStmt:
		if len(n.Results) != 1 {
			break
		}
		if b, ok := n.Results[0].(*ast.BinaryExpr); ok && isTruth(b.Op) {
			p.condition(b, true)
		}
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			p.condition(n.X, true)
			p.condition(n.Y, true)
		}
		p.border(n)
	case *ast.BlockStmt:
		p.statements(n.List)
	case *ast.CaseClause:
		p.statements(n.Body)
	case *ast.CommClause:
		p.statements(n.Body)
	}
}

func isTruth(op token.Token) bool {
	return slices.Contains([]token.Token{token.EQL, token.NEQ, token.LSS, token.GTR, token.LEQ, token.GEQ, token.LAND, token.LOR}, op)
}

// condition plants mutants of a condition: one that never holds and, if always is set, one
// that always holds.
func (p *planter) condition(e ast.Expr, always bool) {
	holds := 0
	if always {
		holds = p.mutant(e, "always holds")
	}
	holdsNot := p.mutant(e, "never holds")
	p.wrap(e, fmt.Sprintf("mutants.Condition(%d, %d, ", holds, holdsNot), ")")
}

// border plants a mutant of a comparison that treats equal values the other way. It skips
// operands whose second evaluation could have an effect.
func (p *planter) border(b *ast.BinaryExpr) {
	other, ok := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[b.Op]
	if !ok || hasCall(b) {
		return
	}
	n := p.mutant(b, "is "+other)
	p.wrap(b, fmt.Sprintf("mutants.Border(%d, ", n), fmt.Sprintf(", %s %s %s)", p.text(b.X), other, p.text(b.Y)))
}

func hasCall(e ast.Expr) (has bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			name, ok := call.Fun.(*ast.Ident)
			has = has || !ok || name.Name != "len"
		}
		return !has
	})
	return has
}

// statements plants a mutant for each statement that can be left out.
func (p *planter) statements(list []ast.Stmt) {
	for _, s := range list {
		if canBeLeftOut(s) {
			n := p.mutant(s, "is left out")
			p.wrap(s, fmt.Sprintf("if mutants.In(%d) { ", n), " }")
		}
	}
}

func canBeLeftOut(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return true // a receive
		}
		name, ok := call.Fun.(*ast.Ident)
		return !ok || name.Name != "panic" // without it the function might lack a return
	}
	return false
}

// mutant adds a mutant and returns its number.
func (p *planter) mutant(n ast.Node, change string) int {
	m := mutant{number: p.next, file: p.file, line: p.files.Position(n.Pos()).Line, change: change, code: strings.Join(strings.Fields(p.text(n)), " ")}
	const long = 120
	if runes := []rune(m.code); len(runes) > long {
		m.code = string(runes[:long]) + " …"
	}
	p.next++
	kind := m.key()
	m.nth = p.same[kind]
	p.same[kind]++
	p.mutants = append(p.mutants, m)
	return m.number
}

func (p *planter) text(n ast.Node) string {
	return string(p.source[p.files.Position(n.Pos()).Offset:p.files.Position(n.End()).Offset])
}

// wrap inserts text around a node. Outer nodes come first, so at the same offset later opening
// texts go further inside, and closing texts come first, in reverse order.
func (p *planter) wrap(n ast.Node, open, end string) {
	order := len(p.inserts) + 1
	p.insert(n.Pos(), open, order)
	p.insert(n.End(), end, -order)
}

func (p *planter) insert(at token.Pos, text string, order int) {
	p.inserts = append(p.inserts, insert{p.files.Position(at).Offset, text, order})
}

func (p *planter) write() []byte {
	slices.SortFunc(p.inserts, func(a, b insert) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	var out bytes.Buffer
	last := 0
	for _, i := range p.inserts {
		out.Write(p.source[last:i.at])
		out.WriteString(i.text)
		last = i.at
	}
	out.Write(p.source[last:])
	return out.Bytes()
}
