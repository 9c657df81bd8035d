package main

import (
	"encoding/json"
	"strings"

	"github.com/wasilibs/go-pgquery/parser"
)

// doBlock reads the body of a DO statement, which the parser takes for a string.
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
		r.found("a DO block in the language %s is not known to this check", language)
		return
	}
	encoded, err := parser.ParsePlPgSqlToJSON("DO LANGUAGE plpgsql $pgelector$" + body + "$pgelector$")
	if err != nil {
		r.found("the DO block cannot be read: %v", err)
		return
	}
	var tree any
	if err := json.Unmarshal([]byte(encoded), &tree); err != nil {
		r.found("the DO block cannot be read: %v", err)
		return
	}
	r.block("", tree)
}

// block reads the tree of a PL/pgSQL block: the types that it declares, and the
// expressions and statements, which are texts.
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
				r.found("EXECUTE runs a text that this check cannot read")
			case key == "PLpgSQL_expr":
				expression := below.(map[string]any)
				mode, _ := expression["parseMode"].(float64)
				r.expression(expression["query"].(string), int(mode))
			case key == "PLpgSQL_type":
				name := below.(map[string]any)["typname"].(string)
				if name != "UNKNOWN" { // of a record: each has the type of what it is given
					r.expression("SELECT NULL::"+name, statement)
				}
			default:
				r.block(key, below)
			}
		}
	}
}

// How PL/pgSQL has a text parsed (RawParseMode). Those above are assignments.
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
		text = "SELECT " + target + ", " + value // a target may have subscripts
	}
	findings, err := Statements(text)
	if err != nil {
		r.found("%q in the DO block cannot be read: %v", text, err)
	}
	for _, f := range findings {
		r.found("%s", f.What)
	}
}
