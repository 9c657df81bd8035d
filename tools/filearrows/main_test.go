package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFilesThatUseEachOtherAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"one direction": {map[string]string{"a.go": "func A() { B() }", "b.go": "func B() {}"}, nil},
		"two":           {map[string]string{"a.go": "func A() { B() }", "b.go": "func B() { A() }"}, []string{"a.go uses B of b.go, which uses it", "b.go uses A of a.go, which uses it"}},
		"a cycle of three": {map[string]string{"a.go": "func A() { B() }", "b.go": "type T struct{ C }\nfunc B() { var _ C }", "c.go": "type C int\nfunc (C) M() { A() }"},
			[]string{"a.go uses B of b.go, which uses it", "b.go uses C of c.go, which uses it", "c.go uses A of a.go, which uses it"}},
		"methods of one type": {map[string]string{"a.go": "type T int\nfunc (t T) A() { t.B() }", "b.go": "func (t *T) B() { t.A() }"}, nil},
		"a method of another": {map[string]string{"a.go": "type T int\nfunc (T) A() { var u U; u.B() }", "b.go": "type U int\nfunc (U) B() { var t T; t.A() }"},
			[]string{"a.go uses B, U of b.go, which uses it", "b.go uses A, T of a.go, which uses it"}},
		"a test file":       {map[string]string{"a.go": "func A() { B() }", "b.go": "func B() {}", "b_test.go": "func C() { A() }"}, nil},
		"an unknown import": {map[string]string{"a.go": "import \"x.test/y\"\nfunc A() { y.Z(); B() }", "b.go": "func B() { A() }"}, []string{"a.go uses B of b.go, which uses it", "b.go uses A of a.go, which uses it"}},
		"a field":           {map[string]string{"a.go": "type T struct{ F int }\nfunc A() { B() }", "b.go": "func B() {}"}, nil},
	} {
		folder := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(folder, file), []byte("package p\n"+text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(folder)
		if got, err := check("."); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
	t.Chdir(t.TempDir())
	if _, err := check("."); err == nil {
		t.Error("a folder without Go files was checked")
	}
}
