package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

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

// skip skips other modules, whose code runs on test servers only.
func skip(root, path string, entry fs.DirEntry) error {
	if path == root {
		return nil
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" {
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

// document checks the statements that a document tells its readers to run. They may
// contain safePath, which is easier to read than qualified names.
func document(text string) (checked int, findings []Finding, err error) {
	for _, at := range sqlBlock.FindAllStringSubmatchIndex(text, -1) {
		checked++
		code := psqlValue.ReplaceAllString(psqlLine.ReplaceAllString(text[at[2]:at[3]], ""), "''")
		found, err := Statements(code)
		if err != nil {
			return 0, nil, fmt.Errorf("line %d: %w", line(text, at[2]), err)
		}
		if strings.Contains(code, safePath) {
			continue
		}
		for _, f := range found {
			findings = append(findings, Finding{line(text, at[2]) + line(code, f.At) - 1, f.What + `, and the block does not contain "` + safePath + `"`})
		}
	}
	return checked, findings, nil
}
