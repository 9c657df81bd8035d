package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/wasilibs/go-pgquery/parser"
)

// A Finding is what is wrong in a text, and where: an offset in bytes.
type Finding struct {
	At   int
	What string
}

// Statements reads a text of statements, and tells what in it depends on the
// search_path. An error says that PostgreSQL could not read it.
func Statements(text string) ([]Finding, error) {
	encoded, err := parser.ParseToJSON(text)
	if err != nil {
		return nil, err
	}
	var tree struct {
		Stmts []struct {
			Stmt map[string]any `json:"stmt"`
			At   float64        `json:"stmt_location"`
		} `json:"stmts"`
	}
	if err := json.Unmarshal([]byte(encoded), &tree); err != nil {
		return nil, err
	}
	r := &reader{text: text}
	for _, s := range tree.Stmts {
		r.at = int(s.At)
		r.value("", s.Stmt)
	}
	slices.SortFunc(r.findings, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.What, b.What)) })
	return r.findings, nil
}

// A reader walks the tree of a statement. A node is a JSON object with one key, its
// kind, such as {"FuncCall": {…}}; where the kind follows from the field's name, the
// object stands there alone.
type reader struct {
	text     string
	at       int
	with     []string // the names of common table expressions that are in scope
	findings []Finding
}

func (r *reader) found(format string, args ...any) {
	r.findings = append(r.findings, Finding{r.at, fmt.Sprintf(format, args...)})
}

type fields map[string]any

// value reads what a field holds.
func (r *reader) value(field string, v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			r.value(field, one)
		}
	case map[string]any:
		if len(v) == 0 {
			return // nothing is there
		}
		if kind, inner, wrapped := unwrap(v); wrapped {
			r.node(kind, inner)
		} else if kind, known := kinds[field]; known {
			r.node(kind, v)
		} else {
			r.found("the field %q of a statement's tree is not known to this check", field)
		}
	}
}

// unwrap takes {"Kind": {…}} apart.
func unwrap(v map[string]any) (kind string, inner fields, wrapped bool) {
	if len(v) != 1 {
		return "", nil, false
	}
	for key, value := range v {
		inner, isNode := value.(map[string]any)
		if isNode && unicode.IsUpper(rune(key[0])) {
			return key, inner, true
		}
	}
	return "", nil, false
}

// node reads a node, and what is below it. Common table expressions come first:
// they are in scope in all that follows, and after the statement no more.
func (r *reader) node(kind string, f fields) {
	at, scope := r.at, len(r.with)
	if location, ok := f["location"].(float64); ok {
		r.at = int(location)
	}
	if check := rule(kind); check != nil {
		check(r, f)
	} else if !slices.Contains(harmless, kind) {
		r.found("%s is not known to this check", kind)
	}
	order := []string{"withClause"}
	for field := range f {
		if field != "withClause" {
			order = append(order, field)
		}
	}
	slices.Sort(order[1:])
	for _, field := range order {
		if !slices.Contains(names[kind], field) {
			r.value(field, f[field])
		}
	}
	if kind == "CommonTableExpr" {
		r.with = append(r.with[:scope], f["ctename"].(string))
		scope++
	}
	if kind == "WithClause" {
		scope = len(r.with)
	}
	r.at, r.with = at, r.with[:scope]
}

// list is a list of strings, such as a qualified name.
func (f fields) list(field string) (all []string) {
	items, _ := f[field].([]any)
	for _, item := range items {
		_, inner, _ := unwrap(item.(map[string]any))
		text, _ := inner["sval"].(string)
		all = append(all, text)
	}
	return all
}

func (f fields) text(field string) string { text, _ := f[field].(string); return text }

// qualified checks a name that PostgreSQL would otherwise look up in the search_path.
func (r *reader) qualified(what string, name []string) {
	if len(name) != 2 || name[0] != "pg_catalog" {
		r.found("the %s %s is not qualified with pg_catalog", what, strings.Join(name, "."))
	}
}
