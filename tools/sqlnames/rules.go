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

// kinds maps fields whose nodes are not wrapped to the kinds of these nodes.
var kinds = map[string]string{
	"alias": "Alias", "argType": "TypeName", "collClause": "CollateClause", "funccall": "FuncCall", "infer": "InferClause", "larg": "SelectStmt", "newtype": "TypeName", "objtype": "TypeName",
	"onConflictClause": "OnConflictClause", "over": "WindowDef", "rarg": "SelectStmt", "relation": "RangeVar", "role": "RoleSpec", "setstmt": "VariableSetStmt",
	"typeName": "TypeName", "withClause": "WithClause",
}

// names are the fields that hold names, constants or the aliases of a locking clause.
// They have no nodes below them. The rules read the names.
var names = map[string][]string{
	"A_Const": {"boolval", "bsval", "fval", "ival", "sval"}, "LockingClause": {"lockedRels"},
	"A_Expr": {"name"}, "CollateClause": {"collname"}, "ColumnRef": {"fields"}, "FuncCall": {"funcname"},
	"IndexElem": {"collation", "opclass"}, "ObjectWithArgs": {"objname"}, "RangeTableSample": {"method"}, "SortBy": {"useOp"}, "SubLink": {"operName"}, "TypeName": {"names"},
}

// harmless are the kinds for which PostgreSQL does not use the search_path. ORDER BY,
// GROUP BY, DISTINCT, UNION, GREATEST and LEAST use the operators of the type's default
// operator class. A column takes precedence over a function of the same name.
var harmless = []string{
	"A_ArrayExpr", "A_Const", "A_Indices", "A_Indirection", "A_Star", "AccessPriv", "Alias", "AlterDatabaseSetStmt", "AlterRoleSetStmt", "AlterRoleStmt", "AlterSystemStmt", "AlterTableStmt", "BitString", "Boolean", "BooleanTest", "BoolExpr", "CallStmt", "CaseWhen",
	"CoalesceExpr", "ColumnDef", "ColumnRef", "CommentStmt", "CommonTableExpr", "Constraint", "CreateSchemaStmt", "CreateStmt",
	"DefElem", "DeleteStmt", "Float", "FunctionParameter", "GrantStmt", "InferClause", "InsertStmt", "Integer", "List", "ListenStmt", "LockingClause", "MinMaxExpr",
	"NamedArgExpr", "NotifyStmt", "NullTest", "OnConflictClause", "ParamRef", "RangeFunction", "RangeSubselect", "ResTarget", "RoleSpec", "RowExpr",
	"SelectStmt", "SQLValueFunction", "String", "TransactionStmt", "TypeCast", "UnlistenStmt", "UpdateStmt", "VariableSetStmt", "VariableShowStmt",
	"WindowDef", "WithClause",
}

// rule returns the rule for a kind that contains or implies a name.
func rule(kind string) func(*reader, fields) {
	switch kind {
	case "A_Expr":
		return operator
	case "AlterTableCmd":
		return alterTable
	case "CaseExpr":
		return simpleCase
	case "CollateClause":
		return func(r *reader, f fields) { r.qualified("collation", f.list("collname")) }
	case "DoStmt":
		return doBlock
	case "FuncCall":
		return function
	case "IndexElem":
		return indexElement
	case "JoinExpr":
		return join
	case "ObjectWithArgs":
		return func(r *reader, f fields) { r.qualified("function", f.list("objname")) }
	case "RangeTableSample":
		return func(r *reader, f fields) { r.qualified("function", f.list("method")) }
	case "RangeVar":
		return relation
	case "SortBy":
		return sortBy
	case "SubLink":
		return subLink
	case "TypeName":
		return typeName
	}
	return nil
}

func alterTable(r *reader, f fields) {
	if kind := f.text("subtype"); kind != "AT_AddColumn" {
		r.found("this check does not know the change of a table %s", kind)
	}
}

func function(r *reader, f fields) {
	name := f.list("funcname")
	if len(name) == 2 && name[0] == "sqlc" {
		return // a parameter, which sqlc replaces
	}
	r.qualified("function", name)
}

// implied are the notations of an operator that cannot name its schema.
var implied = map[string]string{
	"AEXPR_DISTINCT": "IS DISTINCT FROM", "AEXPR_NOT_DISTINCT": "IS NOT DISTINCT FROM", "AEXPR_NULLIF": "NULLIF", "AEXPR_IN": "IN",
	"AEXPR_LIKE": "LIKE", "AEXPR_ILIKE": "ILIKE", "AEXPR_SIMILAR": "SIMILAR TO", "AEXPR_BETWEEN": "BETWEEN", "AEXPR_NOT_BETWEEN": "NOT BETWEEN",
	"AEXPR_BETWEEN_SYM": "BETWEEN SYMMETRIC", "AEXPR_NOT_BETWEEN_SYM": "NOT BETWEEN SYMMETRIC",
}

func operator(r *reader, f fields) {
	kind := f.text("kind")
	if text, is := implied[kind]; is {
		r.found("%s uses an operator from the search_path: write OPERATOR(pg_catalog.…)", text)
		return
	}
	if !slices.Contains([]string{"AEXPR_OP", "AEXPR_OP_ANY", "AEXPR_OP_ALL"}, kind) {
		r.found("this check does not know the operator of kind %s", kind)
	}
	r.qualified("operator", f.list("name"))
}

func simpleCase(r *reader, f fields) {
	if f["arg"] != nil {
		r.found("CASE x WHEN uses an operator from the search_path: write CASE WHEN x OPERATOR(pg_catalog.=) …")
	}
}

func subLink(r *reader, f fields) {
	switch f.text("subLinkType") {
	case "EXISTS_SUBLINK", "EXPR_SUBLINK", "ARRAY_SUBLINK":
		return
	}
	if name := f.list("operName"); len(name) > 0 {
		r.qualified("operator", name)
		return
	}
	r.found("IN (SELECT …) uses an operator from the search_path: write OPERATOR(pg_catalog.=) ANY (SELECT …)")
}

func join(r *reader, f fields) {
	if f["usingClause"] != nil || f["isNatural"] != nil {
		r.found("USING and NATURAL use operators from the search_path: write ON …")
	}
}

func sortBy(r *reader, f fields) {
	if name := f.list("useOp"); len(name) > 0 {
		r.qualified("operator", name)
	}
}

func typeName(r *reader, f fields) {
	if f["pct_type"] != nil {
		r.found("%s%%TYPE looks for a relation in the search_path", strings.Join(f.list("names"), "."))
		return
	}
	name := f.list("names")
	if len(name) == 2 && name[1] == "json" && !strings.HasPrefix(r.text[r.at:], "pg_catalog") {
		name = name[1:] // json is a keyword of the grammar since PostgreSQL 17, and was a name before
	}
	r.qualified("type", name)
}

func indexElement(r *reader, f fields) {
	for what, field := range map[string]string{"operator class": "opclass", "collation": "collation"} {
		if name := f.list(field); len(name) > 0 {
			r.qualified(what, name)
		}
	}
}

// relation allows the server's own relations, and those of the roster and of ticks. Their schema is
// "chosen" in their statements, and "pgelector" by default. The table of package
// fence belongs to the user, whose search_path finds it.
func relation(r *reader, f fields) {
	schema, name := f.text("schemaname"), f.text("relname")
	switch {
	case slices.Contains([]string{"pg_catalog", "chosen", "pgelector"}, schema):
	case schema == "" && (name == "fence" || slices.Contains(r.with, name)):
	default:
		r.found("the relation %s is in neither pg_catalog nor the schema of the roster", strings.TrimPrefix(schema+"."+name, "."))
	}
}

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

// doBlock reads the body of a DO statement, which is a string to the parser.
func doBlock(r *reader, f fields) {
	body, language := "", "plpgsql"
	args, _ := f["args"].([]any)
	for _, arg := range args {
		_, option, _ := unwrap(arg.(map[string]any))
		_, value, _ := unwrap(option["arg"].(map[string]any))
		text, _ := value["sval"].(string)
		switch option["defname"] {
		case "as":
			body = text
		case "language":
			language = text
		}
	}
	if language != "plpgsql" {
		r.found("this check does not know the language %s of a DO block", language)
		return
	}
	encoded, err := parser.ParsePlPgSqlToJSON("DO LANGUAGE plpgsql $pgelector$" + body + "$pgelector$")
	if err != nil {
		r.found("cannot parse the DO block: %v", err)
		return
	}
	var tree any
	if err := json.Unmarshal([]byte(encoded), &tree); err != nil {
		r.found("cannot parse the DO block: %v", err)
		return
	}
	r.block("", tree)
}

// block reads the tree of a PL/pgSQL block. Types, expressions and statements are
// strings in it.
func (r *reader) block(field string, v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			r.block(field, one)
		}
	case map[string]any:
		for key, below := range v {
			switch {
			case strings.HasPrefix(key, "PLpgSQL_stmt_dyn") || key == "dynquery":
				r.found("this check cannot read the text that EXECUTE runs")
			case key == "PLpgSQL_expr":
				expression := below.(map[string]any)
				mode, _ := expression["parseMode"].(float64)
				r.expression(expression["query"].(string), int(mode))
			case key == "PLpgSQL_type":
				name := below.(map[string]any)["typname"].(string)
				if name != "UNKNOWN" { // a record takes the type of the assigned value
					r.expression("SELECT NULL::"+name, statement)
				}
			default:
				r.block(key, below)
			}
		}
	}
}

// How PL/pgSQL parses a text (RawParseMode). Greater modes are assignments.
const (
	statement  = 0
	expression = 2
)

func (r *reader) expression(text string, mode int) {
	switch mode {
	case statement:
	case expression:
		text = "SELECT " + text
	default:
		target, value, found := strings.Cut(text, ":=")
		if !found {
			target, value, _ = strings.Cut(text, "=")
		}
		text = "SELECT " + target + ", " + value // a target may contain expressions, as subscripts
	}
	findings, err := Statements(text)
	if err != nil {
		r.found("cannot parse %q in the DO block: %v", text, err)
	}
	for _, f := range findings {
		r.found("%s", f.What)
	}
}
