package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// goFile checks each string of a Go file that is a statement.
func goFile(text string) (checked int, findings []Finding, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		return 0, nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ImportSpec, *ast.Field: // the only string in a field is its tag
			return false
		}
		e, isExpr := n.(ast.Expr)
		if !isExpr {
			return true
		}
		parts, isText := pieces(e)
		if !isText {
			return true
		}
		found, isStatement := goString(parts)
		if isStatement {
			checked++
		}
		for _, f := range found {
			findings = append(findings, Finding{set.Position(e.Pos()).Line + f.At, f.What})
		}
		return false
	})
	return checked, findings, err
}

// pieces returns the constant parts of a string. Between two of them is a value that is
// known only at run time.
func pieces(e ast.Expr) (all []string, isText bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return pieces(e.X)
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return nil, false
		}
		text, err := strconv.Unquote(e.Value)
		return []string{text}, err == nil
	case *ast.BinaryExpr:
		left, leftIs := pieces(e.X)
		right, rightIs := pieces(e.Y)
		if e.Op != token.ADD || !leftIs && !rightIs {
			return nil, false
		}
		if !leftIs {
			left = []string{"", ""}
		}
		if !rightIs {
			right = []string{"", ""}
		}
		last := len(left) - 1
		return append(append(left[:last:last], left[last]+right[0]), right[1:]...), true
	}
	return nil, false
}

var (
	begins = regexp.MustCompile(`(?i)^(?:\s|--.*\n|/\*(?s:.*?)\*/)*(ALTER|ANALYZE|BEGIN|CALL|CLOSE|CLUSTER|COMMENT|COMMIT|COPY|CREATE|DEALLOCATE|DECLARE|DELETE|` +
		`DISCARD|DO|DROP|EXECUTE|EXPLAIN|FETCH|GRANT|IMPORT|INSERT|LISTEN|LOCK|MERGE|MOVE|NOTIFY|PREPARE|REASSIGN|REFRESH|REINDEX|RELEASE|RESET|` +
		`REVOKE|ROLLBACK|SAVEPOINT|SELECT|SET|SHOW|START|TABLE|TRUNCATE|UNLISTEN|UPDATE|VACUUM|VALUES|WITH)\b`)
	verb = regexp.MustCompile(`%(\[\d+\])?[+#]?[a-z]`)
)

// goString checks a string if it is a statement. A string that begins with a command in
// capitals must be a complete statement, because this check cannot see parts that are
// added elsewhere. Another string is a statement if PostgreSQL can parse it. At of a
// finding is the line within the string.
func goString(parts []string) (findings []Finding, isStatement bool) {
	command := begins.FindStringSubmatch(parts[0])
	if command == nil {
		return nil, false
	}
	var failed error
	for _, value := range []string{"x", "'x'", "1"} { // an unknown value may be a name, a string or a number
		text := strings.Join(parts, value)
		for _, text := range []string{text, verb.ReplaceAllString(text, value)} {
			findings, err := Statements(text)
			if err == nil {
				for i := range findings {
					findings[i].At = line(text, findings[i].At) - 1
				}
				return findings, true
			}
			failed = err
		}
	}
	if command[1] != strings.ToUpper(command[1]) {
		return nil, false
	}
	return []Finding{{0, "cannot parse and check this statement: " + failed.Error()}}, true
}
