package main

import (
	"slices"
	"strings"
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
	"A_ArrayExpr", "A_Const", "A_Indices", "A_Indirection", "A_Star", "AccessPriv", "Alias", "AlterDatabaseSetStmt", "AlterRoleSetStmt", "AlterRoleStmt", "AlterSystemStmt", "BitString", "Boolean", "BooleanTest", "BoolExpr", "CallStmt", "CaseWhen",
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

// relation allows the server's own relations and those of the roster. Their schema is
// "chosen" in the roster's statements, and "pgelector" by default. The table of package
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
