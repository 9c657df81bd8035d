//go:build linux

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLinesWrapAsOnATerminal(t *testing.T) {
	p := &pane{host: "web-1", chunks: []chunk{
		{1 * time.Second, "web-1 $ ls\r"}, {2 * time.Second, "\n\x1b[31mred\x1b[0m\r\n" + strings.Repeat("x", columns+1)}, {3 * time.Second, "\r\nweb-1 $ "},
	}}
	var got []string
	for _, l := range p.lines() {
		got = append(got, l.text)
	}
	if want := []string{"web-1 $ ls", "red", strings.Repeat("x", columns), "x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if at := p.lines()[1].at; at != 2*time.Second {
		t.Errorf("the second line was written at %v", at)
	}
}

func TestTheCommittedPictureShowsTheSession(t *testing.T) {
	picture, err := os.ReadFile("../../docs/pictures/session.svg")
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(strings.NewReader(string(picture)))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{"pgelector run", "pgelector watch", "pgelector status", "web-2 leads"} {
		if !strings.Contains(string(picture), part) {
			t.Errorf("it does not show %q: make record", part)
		}
	}
}
