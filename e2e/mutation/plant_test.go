package main

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const plain = `package p

func f(a, b int, c chan int) (err error) {
	defer g()
	if a < b && len(c) == 0 {
		a = b
	}
	switch {
	case a > g():
		<-c
	}
	return nil
}
`

const withMutants = `package p

import "github.com/pgelector/pgelector/internal/mutants"

func f(a, b int, c chan int) (err error) {
	if mutants.In(1) {
		defer g()
	}
	if mutants.Condition(2, 3, mutants.Condition(4, 5, mutants.Border(8, a < b, a <= b)) && mutants.Condition(6, 7, len(c) == 0)) {
		if mutants.In(9) {
			a = b
		}
	}
	switch {
	case mutants.Condition(10, 11, a > g()):
		if mutants.In(12) {
			<-c
		}
	}
	return nil
}
`

func TestMutantsArePlanted(t *testing.T) {
	planted, mutants, err := plant("p.go", []byte(plain), 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := format.Source(planted)
	if err != nil {
		t.Fatalf("%v in\n%s", err, planted)
	}
	if string(got) != withMutants {
		t.Errorf("got\n%s", got)
	}
	if m := mutants[7]; len(mutants) != 12 || m.number != 8 || m.line != 5 || m.change != "is <=" || m.code != "a < b" {
		t.Errorf("got %d, %+v", len(mutants), m)
	}
}

func TestTheSameMutantOfTwoLinesHasTwoKeys(t *testing.T) {
	_, mutants, err := plant("p.go", []byte("package p\nfunc f() {\n\tf()\n\tf()\n}\n"), 1)
	if err != nil || len(mutants) != 2 || mutants[0].key() == mutants[1].key() {
		t.Errorf("got %+v, %v", mutants, err)
	}
}

func TestTheSwitchHasRoomForAll(t *testing.T) {
	dir := t.TempDir()
	if err := installSwitch(dir, 12); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(dir, "internal", "mutants", "mutants.go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := format.Source(source); err != nil || !strings.Contains(string(source), "[13]atomic.Bool") {
		t.Errorf("%v in\n%s", err, source)
	}
}
