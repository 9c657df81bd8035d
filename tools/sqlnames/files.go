package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// repository checks what is in the repository at root. checked counts the texts.
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

// skip leaves out other modules, whose code runs on servers of their own.
func skip(root, path string, entry fs.DirEntry) error {
	if path == root {
		return nil
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" {
		return fs.SkipDir
	}
	return nil
}

// reads are the ways of finding the statements of a file, by its extension. The
// findings are told by line; checked counts the texts.
var reads = map[string]func(text string) (checked int, findings []Finding, err error){
	".sql": sqlFile,
	".go":  goFile,
	".md":  document,
}

// line is that of an offset in a text.
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

// safePath begins a text in which all names are those of pg_catalog anyway.
const safePath = "SET search_path = pg_catalog;"

// document checks the statements that a reader is told to paste. They may set the
// path instead, which is easier to read.
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
			findings = append(findings, Finding{line(text, at[2]) + line(code, f.At) - 1, f.What + `, and the block does not say "` + safePath + `"`})
		}
	}
	return checked, findings, nil
}
