package main

import (
	"encoding/json"
	"strings"

	"github.com/wasilibs/go-pgquery/parser"
)

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
