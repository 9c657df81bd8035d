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

var (
	inline      = regexp.MustCompile("`+[^`\n]+`+")
	makeCommand = regexp.MustCompile(`(?m)(?:^|[;&|(]|\$ )[ \t]*make((?:[ \t]+[^ \t\n;&|#)]+)*)`)
	targetName  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// MakeTargets returns the make targets in a document's code: in code spans and in blocks of
// any language except Go, in order.
func MakeTargets(document string) ([]string, error) {
	blocks, err := Blocks(document)
	if err != nil {
		return nil, err
	}
	var commands []string
	prose := document
	for _, block := range blocks {
		prose = strings.Replace(prose, block.Code, "", 1)
		if block.Language != "go" {
			commands = append(commands, block.Code)
		}
	}
	for _, span := range inline.FindAllString(prose, -1) {
		commands = append(commands, strings.Trim(span, "`"))
	}

	var targets []string
	for _, command := range commands {
		for _, match := range makeCommand.FindAllStringSubmatch(command, -1) {
			for word := range strings.FieldsSeq(match[1]) {
				if targetName.MatchString(word) { // neither a flag nor VAR=value
					targets = append(targets, word)
				}
			}
		}
	}
	return targets, nil
}
