// Command core prints the figures of the core, and fails if one is above its bound: lines of code and files of the kernel, of
// what it stands on, of the answerers, of each part and of elector; and the longest files and largest types. bounds.go has the
// kinds and the bounds.
//
//	go -C tools run ./core        counts
//	go -C tools run ./core -run   runs one default election, too: the files that it enters, and its frames
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	runs := flag.Bool("run", false, "run one default election, too")
	flag.Parse()
	err := count("..")
	if *runs {
		err = errors.Join(err, enter(".."))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func all() []string { return slices.Concat(kernel, under, answerers, asks, parts, api) }

func groups() []group {
	groups := []group{
		{"kernel", kernel, mostKernel}, {"kernel, with what it stands on", slices.Concat(kernel, under), mostWithUnder},
		{"answerers", answerers, 0}, {"what parts share", asks, 0}, {"parts", parts, 0}, {"elector", api, 0}, {"all", all(), mostCore},
	}
	for _, p := range slices.Sorted(slices.Values(slices.Concat(answerers, asks, parts))) {
		groups = append(groups, group{name: "  " + p, packages: []string{p}})
	}
	return groups
}

// A findings is what is above its bound, or is missing.
type findings []error

func (f *findings) add(format string, args ...any) {
	*f = append(*f, fmt.Errorf("core: "+format, args...))
}

func (f *findings) bound(what string, n, most int) {
	if n > most {
		f.add("%s: %d, at most %d", what, n, most)
	}
}

// count prints and checks what can be counted.
func count(root string) error {
	var found findings
	if err := found.listed(root); err != nil {
		return err
	}
	of := map[string][]*source{}
	shapes := shapes{}
	var files []*source
	for _, p := range all() {
		read, err := readAll(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			return err
		}
		of[p] = read
		for _, s := range read {
			s.name = p + "/" + s.name
			files = append(files, s)
			shapes.add(s)
		}
	}
	fmt.Printf("%-34s %5s %6s %6s\n", "", "files", "lines", "code")
	for _, g := range groups() {
		n, lines, code := 0, 0, 0
		for _, p := range g.packages {
			for _, s := range of[p] {
				n, lines, code = n+1, lines+s.lines, code+s.code
			}
		}
		fmt.Printf("%-34s %5d %6d %6d\n", g.name, n, lines, code)
		if g.code > 0 {
			found.bound("lines of code of "+g.name, code, g.code)
		}
	}
	slices.SortFunc(files, func(a, b *source) int { return cmp.Or(b.lines-a.lines, strings.Compare(a.name, b.name)) })
	fmt.Println("\nthe longest files:")
	for i, s := range files {
		if i < 5 {
			fmt.Printf("  %-40s %4d lines\n", s.name, s.lines)
		}
		found.bound("lines of "+s.name, s.lines, cmp.Or(long[s.name], mostFile))
	}
	shapes.print(&found)
	return errors.Join(found...)
}

// listed finds packages that bounds.go forgets.
func (f *findings) listed(root string) error {
	folders, err := filepath.Glob(filepath.Join(root, "internal", "*"))
	if err != nil || len(folders) == 0 {
		return fmt.Errorf("core: no packages: %w", errors.Join(err, os.ErrNotExist))
	}
	for _, folder := range folders {
		if p := "internal/" + filepath.Base(folder); !slices.Contains(all(), p) && !slices.Contains(notCore, p) {
			f.add("%s is of no kind: add it to tools/core/bounds.go", p)
		}
	}
	return nil
}
