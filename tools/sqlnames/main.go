// Command sqlnames fails if a statement in this repository contains a function, an
// operator, a type or a relation that PostgreSQL looks up in the search_path. A role
// that may create one in a schema of that path could replace it, and its code would run
// with the rights of the role that executes the statement.
//
//	go -C tools run ./sqlnames
//
// It checks the queries for sqlc, the migrations, each string of the Go code of the root
// module and the command that is a statement, and the SQL of the documents, with
// PostgreSQL's own parser. Sections 5.10.6 and 10.2 of PostgreSQL's manual explain how it
// looks names up.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	root := flag.String("root", "..", "the repository")
	flag.Parse()
	checked, findings, err := repository(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sqlnames:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
	fmt.Printf("sqlnames: %d texts, all names qualified\n", checked)
}

// repository checks the repository at root. checked is the number of texts.
func repository(root string) (checked int, findings []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skip(root, path, entry)
		}
		read := reads[filepath.Ext(path)]
		if read == nil || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		n, found, err := read(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		checked += n
		for _, f := range found {
			findings = append(findings, fmt.Sprintf("%s:%d: %s", name, f.At, f.What))
		}
		return nil
	})
	return checked, findings, err
}

// skip skips other modules than the command, whose code runs on test servers only.
func skip(root, path string, entry fs.DirEntry) error {
	if path == root {
		return nil
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	if err == nil && path != filepath.Join(root, "cmd", "pgelector") || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" {
		return fs.SkipDir
	}
	return nil
}

// reads has a function per file extension that checks the statements of a file. At of
// its findings is a line number. checked is the number of texts.
var reads = map[string]func(text string) (checked int, findings []Finding, err error){
	".sql": sqlFile,
	".go":  goFile,
	".md":  document,
}

// line returns the line number of an offset.
func line(text string, offset int) int { return 1 + strings.Count(text[:min(offset, len(text))], "\n") }

func sqlFile(text string) (int, []Finding, error) {
	findings, err := Statements(text)
	for i := range findings {
		findings[i].At = line(text, findings[i].At)
	}
	return 1, findings, err
}

var (
	sqlBlock  = regexp.MustCompile("(?s)```sql\n(.*?)```")
	psqlLine  = regexp.MustCompile(`(?m)^\\.*$`)
	psqlValue = regexp.MustCompile(`:'\w+'`)
)

// safePath makes PostgreSQL look up all names in pg_catalog.
const safePath = "SET search_path = pg_catalog;"

// migration begins a migration of goose.
const migration = "-- +goose "

// document checks the statements that a document tells its readers to run. They may
// contain safePath, which is easier to read than qualified names. A migration of goose changes the
// reader's own tables, under the path of its connection.
func document(text string) (checked int, findings []Finding, err error) {
	for _, at := range sqlBlock.FindAllStringSubmatchIndex(text, -1) {
		checked++
		code := psqlValue.ReplaceAllString(psqlLine.ReplaceAllString(text[at[2]:at[3]], ""), "''")
		found, err := Statements(code)
		if err != nil {
			return 0, nil, fmt.Errorf("line %d: %w", line(text, at[2]), err)
		}
		if strings.Contains(code, safePath) || strings.HasPrefix(code, migration) {
			continue
		}
		for _, f := range found {
			findings = append(findings, Finding{line(text, at[2]) + line(code, f.At) - 1, f.What + `, and the block does not contain "` + safePath + `"`})
		}
	}
	return checked, findings, nil
}

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
	if command[1] != strings.ToUpper(command[1]) || parts[0] == command[1] { // a word alone has no names
		return nil, false
	}
	return []Finding{{0, "cannot parse and check this statement: " + failed.Error()}}, true
}
