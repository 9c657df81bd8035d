package main

import (
	"slices"
	"strings"
)

// kinds are the kinds of the nodes that stand in a field without being wrapped.
var kinds = map[string]string{
	"alias": "Alias", "argType": "TypeName", "collClause": "CollateClause", "funccall": "FuncCall", "infer": "InferClause", "larg": "SelectStmt", "newtype": "TypeName", "objtype": "TypeName",
	"onConflictClause": "OnConflictClause", "over": "WindowDef", "rarg": "SelectStmt", "relation": "RangeVar", "role": "RoleSpec", "setstmt": "VariableSetStmt",
	"typeName": "TypeName", "withClause": "WithClause",
}

// names are the fields that hold names, which the rules read, or the value of a
// constant, or the aliases that are locked. Nothing is below them.
var names = map[string][]string{
	"A_Const": {"boolval", "bsval", "fval", "ival", "sval"}, "LockingClause": {"lockedRels"},
	"A_Expr": {"name"}, "CollateClause": {"collname"}, "ColumnRef": {"fields"}, "FuncCall": {"funcname"},
	"IndexElem": {"collation", "opclass"}, "ObjectWithArgs": {"objname"}, "RangeTableSample": {"method"}, "SortBy": {"useOp"}, "SubLink": {"operName"}, "TypeName": {"names"},
}

// harmless are the kinds in which PostgreSQL looks nothing up in the search_path.
// ORDER BY, GROUP BY, DISTINCT, UNION, GREATEST and LEAST take the operators of the
// type's default operator class, and no names. A column comes before a function
// of the same name.
var harmless = []string{
	"A_ArrayExpr", "A_Const", "A_Indices", "A_Indirection", "A_Star", "AccessPriv", "Alias", "AlterDatabaseSetStmt", "AlterRoleSetStmt", "AlterRoleStmt", "AlterSystemStmt", "BitString", "Boolean", "BooleanTest", "BoolExpr", "CallStmt", "CaseWhen",
	"CoalesceExpr", "ColumnDef", "ColumnRef", "CommentStmt", "CommonTableExpr", "Constraint", "CreateSchemaStmt", "CreateStmt",
	"DefElem", "DeleteStmt", "Float", "FunctionParameter", "GrantStmt", "InferClause", "InsertStmt", "Integer", "List", "ListenStmt", "LockingClause", "MinMaxExpr",
	"NamedArgExpr", "NotifyStmt", "NullTest", "OnConflictClause", "ParamRef", "RangeFunction", "RangeSubselect", "ResTarget", "RoleSpec", "RowExpr",
	"SelectStmt", "SQLValueFunction", "String", "TransactionStmt", "TypeCast", "UnlistenStmt", "UpdateStmt", "VariableSetStmt", "VariableShowStmt",
	"WindowDef", "WithClause",
}

// rule is that for a kind that holds, or implies, a name.
func rule(kind string) func(*reader, fields) {
	switch kind {
	case "A_Expr":
		return operator
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

func function(r *reader, f fields) {
	name := f.list("funcname")
	if len(name) == 2 && name[0] == "sqlc" {
		return // a parameter: sqlc replaces it
	}
	r.qualified("function", name)
}

// implied are the ways of writing an operator that leave no room for its schema.
var implied = map[string]string{
	"AEXPR_DISTINCT": "IS DISTINCT FROM", "AEXPR_NOT_DISTINCT": "IS NOT DISTINCT FROM", "AEXPR_NULLIF": "NULLIF", "AEXPR_IN": "IN",
	"AEXPR_LIKE": "LIKE", "AEXPR_ILIKE": "ILIKE", "AEXPR_SIMILAR": "SIMILAR TO", "AEXPR_BETWEEN": "BETWEEN", "AEXPR_NOT_BETWEEN": "NOT BETWEEN",
	"AEXPR_BETWEEN_SYM": "BETWEEN SYMMETRIC", "AEXPR_NOT_BETWEEN_SYM": "NOT BETWEEN SYMMETRIC",
}

func operator(r *reader, f fields) {
	kind := f.text("kind")
	if text, is := implied[kind]; is {
		r.found("%s takes an operator from the search_path: write OPERATOR(pg_catalog.…)", text)
		return
	}
	if !slices.Contains([]string{"AEXPR_OP", "AEXPR_OP_ANY", "AEXPR_OP_ALL"}, kind) {
		r.found("the operator of kind %s is not known to this check", kind)
	}
	r.qualified("operator", f.list("name"))
}

func simpleCase(r *reader, f fields) {
	if f["arg"] != nil {
		r.found("CASE x WHEN takes an operator from the search_path: write CASE WHEN x OPERATOR(pg_catalog.=) …")
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
	r.found("IN (SELECT …) takes an operator from the search_path: write OPERATOR(pg_catalog.=) ANY (SELECT …)")
}

func join(r *reader, f fields) {
	if f["usingClause"] != nil || f["isNatural"] != nil {
		r.found("USING and NATURAL take operators from the search_path: write ON …")
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
		name = name[1:] // json is a word of the grammar from PostgreSQL 17 on, and a name before
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

// relation allows the server's own relations, and those of the roster, whose schema
// is "chosen" in its statements and "pgelector" unless its user chooses another. The
// table of package fence is its user's, whose search_path says where it is.
func relation(r *reader, f fields) {
	schema, name := f.text("schemaname"), f.text("relname")
	switch {
	case slices.Contains([]string{"pg_catalog", "chosen", "pgelector"}, schema):
	case schema == "" && (name == "fence" || slices.Contains(r.with, name)):
	default:
		r.found("the relation %s is in neither pg_catalog nor the schema of the roster", strings.TrimPrefix(schema+"."+name, "."))
	}
}
