// Command sqlnames fails if a statement in this repository contains a function, an
// operator, a type or a relation that PostgreSQL looks up in the search_path. A role
// that may create one in a schema of that path could replace it, and its code would run
// with the rights of the role that executes the statement.
//
//	go -C tools run ./sqlnames
//
// It checks the queries for sqlc, the migrations, each string of the root module's Go
// code that is a statement, and the SQL of the documents, with PostgreSQL's own parser.
// Sections 5.10.6 and 10.2 of PostgreSQL's manual explain how it looks names up.
package main

import (
	"flag"
	"fmt"
	"os"
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
