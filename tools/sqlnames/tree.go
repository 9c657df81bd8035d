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

// A Finding is a fault in a text. At is its offset in bytes.
type Finding struct {
	At   int
	What string
}

// Statements parses SQL statements, and returns what in them depends on the
// search_path. It returns an error if PostgreSQL cannot parse them.
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
// kind, such as {"FuncCall": {…}}. Where the field's name implies the kind, the object
// is not wrapped.
type reader struct {
	text     string
	at       int
	with     []string // the names of the common table expressions in scope
	findings []Finding
}

func (r *reader) found(format string, args ...any) {
	r.findings = append(r.findings, Finding{r.at, fmt.Sprintf(format, args...)})
}

type fields map[string]any

// value reads the value of a field.
func (r *reader) value(field string, v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			r.value(field, one)
		}
	case map[string]any:
		if len(v) == 0 {
			return
		}
		if kind, inner, wrapped := unwrap(v); wrapped {
			r.node(kind, inner)
		} else if kind, known := kinds[field]; known {
			r.node(kind, v)
		} else {
			r.found("this check does not know the field %q of a statement's tree", field)
		}
	}
}

// unwrap returns the kind and the fields of {"Kind": {…}}.
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

// node reads a node and its children. Common table expressions come first: they are in
// scope until the end of the statement.
func (r *reader) node(kind string, f fields) {
	at, scope := r.at, len(r.with)
	if location, ok := f["location"].(float64); ok {
		r.at = int(location)
	}
	if check := rule(kind); check != nil {
		check(r, f)
	} else if !slices.Contains(harmless, kind) {
		r.found("this check does not know %s", kind)
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

// list returns a list of strings, such as a qualified name.
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

// qualified checks a name. PostgreSQL looks one without a schema up in the search_path.
func (r *reader) qualified(what string, name []string) {
	if len(name) != 2 || name[0] != "pg_catalog" {
		r.found("the %s %s is not qualified with pg_catalog", what, strings.Join(name, "."))
	}
}
