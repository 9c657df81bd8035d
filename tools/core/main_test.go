package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shapesOf reads one file of a package.
func shapesOf(t *testing.T, text string) (*source, shapes) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readAll(folder)
	if err != nil {
		t.Fatal(err)
	}
	s := shapes{}
	s.add(all[0])
	return all[0], s
}

func TestOnlyLinesWithCodeAreCounted(t *testing.T) {
	s, _ := shapesOf(t, "// Package a.\npackage a\n\n// A T is wide.\ntype T struct {\n\tx int // one\n}\n")
	if s.lines != 7 || s.code != 4 {
		t.Errorf("%d lines, %d of them code", s.lines, s.code)
	}
}

func TestATypeReachesWhatItEmbeds(t *testing.T) {
	_, s := shapesOf(t, `package a

type T struct {
	a, b int
	*U
	V[int]
}
type U struct{ c, d, e int }
type V[X any] struct{ f X }
type I interface { M(); J }
type J interface { N() }

func (t *T) One()   {}
func (u U) Two()    {}
func (V[X]) Three() {}
`)
	if fields, methods := s.reach("a.T"); fields != 4+3+1 || methods != 3 {
		t.Errorf("T: %d fields, %d methods", fields, methods)
	}
	if fields, methods := s.reach("a.I"); fields != 0 || methods != 2 {
		t.Errorf("I: %d fields, %d methods", fields, methods)
	}
}

func TestEachPackageHasAKind(t *testing.T) {
	var found findings
	if err := found.listed("../.."); err != nil || len(found) > 0 {
		t.Error(err, found)
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "internal", "new"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := found.listed(root); err != nil || len(found) != 1 || !strings.Contains(found[0].Error(), "internal/new") {
		t.Error(err, found)
	}
	if err := found.listed(t.TempDir()); err == nil {
		t.Error("a folder without packages has passed")
	}
}

func TestABoundIsChecked(t *testing.T) {
	var found findings
	found.bound("lines", 3, 3)
	if found.bound("fields", 4, 3); len(found) != 1 || found[0].Error() != "core: fields: 4, at most 3" {
		t.Error(found)
	}
}

func TestAFileIsEnteredIfAnyOfItsCodeIsRun(t *testing.T) {
	const at = module + "internal/"
	got := entered("mode: set\n" + at + "lease/a.go:1.2,3.4 1 0\n" + at + "lease/a.go:5.2,6.4 1 1\n" + at + "lease/b.go:1.2,3.4 1 0\n" + at + "drivertest/c.go:1.2,3.4 1 1\n")
	if !slices.Equal(got, []string{"internal/lease/a.go"}) {
		t.Error(got)
	}
	on := alwaysOn("| part | what | turned on by |\n|---|---|---|\n| `listen` | x | always | t |\n| `inbox`, `live` | x | always; `With` | t |\n| `syncrep` | x | `With` | t |\n")
	if want := []string{"inbox", "listen", "live"}; !slices.Equal(slices.Sorted(maps.Keys(on)), want) {
		t.Error(on)
	}
}
