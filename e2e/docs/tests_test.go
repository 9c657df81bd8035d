package docs

import (
	"path/filepath"
	"regexp"
	"testing"
)

// A document that says which test shows a thing must name one that there is.
func TestEveryTestThatADocumentNamesExists(t *testing.T) {
	there := map[string]bool{}
	for _, pattern := range []string{"../*/*_test.go", "../*/*/*_test.go", "../*/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(read(t, file), -1) {
				there[match[1]] = true
			}
		}
	}
	for _, page := range pages(t) {
		for _, match := range regexp.MustCompile("`(Test[A-Z]\\w*)`").FindAllStringSubmatch(read(t, page), -1) {
			if !there[match[1]] {
				t.Errorf("%s names %s, which there is not", page, match[1])
			}
		}
	}
}
