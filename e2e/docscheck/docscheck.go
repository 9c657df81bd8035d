// Package docscheck extracts code from the project's documents. Its tests check that parts of
// files stand in code that is compiled; package firsthour compiles and runs whole files.
package docscheck

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is one fenced code block of a document.
type Block struct {
	Language string // the first word after the fence; may be empty
	Line     int    // the document's line number of the first line of code
	Code     string
}

// fence matches a line that opens or closes a block: the fence and the rest of the line.
var fence = regexp.MustCompile("^[ \t]*(```+|~~~+)[ \t]*([^`]*)$")

// Blocks returns the fenced blocks of a Markdown document, in order. It fails if a fence is
// not closed.
func Blocks(document string) ([]Block, error) {
	var blocks []Block
	var open string // the fence that opened the current block
	for i, line := range strings.SplitAfter(document, "\n") {
		match := fence.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		switch {
		case open == "" && match != nil:
			open = match[1]
			language, _, _ := strings.Cut(strings.TrimSpace(match[2]), " ")
			blocks = append(blocks, Block{Language: language, Line: i + 2})
		case open != "" && match != nil && strings.HasPrefix(match[1], open) && match[2] == "":
			open = ""
		case open != "":
			blocks[len(blocks)-1].Code += line
		}
	}
	if open != "" {
		return nil, fmt.Errorf("line %d: the fence of this block is not closed", blocks[len(blocks)-1].Line-1)
	}
	return blocks, nil
}
