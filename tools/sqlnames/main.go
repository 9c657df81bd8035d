// Command sqlnames fails if a statement of this repository leaves it to the
// search_path which function, operator, type or relation it means. A role that may
// create such things in a schema of that path could otherwise have its own run by
// whoever executes the statement.
//
//	go -C tools run ./sqlnames
//
// It reads, with PostgreSQL's own parser, the queries for sqlc, the migrations, each
// string of the root module's Go code that is a statement, and the SQL of the
// documents. How PostgreSQL looks names up is told in its manual, 5.10.6 and 10.2.
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
	fmt.Printf("sqlnames: %d texts, each name qualified\n", checked)
}
