package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A standbyList is a value of synchronous_standby_names: commits wait for need of the
// names, whichever those are.
type standbyList struct {
	need  int
	names []string
}

var errListSyntax = errors.New("it has a syntax that is not known")

// parseStandbys reads a value of synchronous_standby_names as the server does
// (PostgreSQL manual, 20.6.2, and syncrep_gram.y).
func parseStandbys(text string) (l standbyList, err error) {
	tokens, err := standbyTokens(text)
	if err != nil {
		return l, err
	}
	l.need = 1
	if n := len(tokens); n > 0 && tokens[n-1].is(")") {
		if tokens[0].is("first") || tokens[0].is("any") {
			tokens = tokens[1:]
		}
		if len(tokens) < 4 || !tokens[1].is("(") {
			return l, errListSyntax
		}
		if l.need, err = strconv.Atoi(tokens[0].name); err != nil || tokens[0].quoted {
			return l, errListSyntax
		}
		tokens = tokens[2 : len(tokens)-1]
	}
	for i, token := range tokens {
		switch separates := i%2 == 1; {
		case separates != token.is(","), !separates && token.special:
			return l, errListSyntax
		case !separates:
			l.names = append(l.names, token.name)
		}
	}
	if len(tokens)%2 == 0 && len(tokens) > 0 || l.need < 1 {
		return l, errListSyntax
	}
	return l, nil
}

// A standbyToken is a name or a number, or one of , ( ) any first, which are special.
type standbyToken struct {
	name            string
	quoted, special bool
}

func (t standbyToken) is(special string) bool { return t.special && t.name == special }

func standbyTokens(text string) (tokens []standbyToken, err error) {
	for rest := strings.TrimLeft(text, spaces); rest != ""; rest = strings.TrimLeft(rest, spaces) {
		var token standbyToken
		switch c := rest[0]; {
		case c == '"':
			token.name, rest, err = unquote(rest[1:])
			token.quoted = true
		case strings.IndexByte(",()", c) >= 0:
			token, rest = standbyToken{name: rest[:1], special: true}, rest[1:]
		case c == '*':
			token.name, rest = "*", rest[1:]
		default:
			n := wordLength(rest)
			if n == 0 {
				return nil, errListSyntax
			}
			token.name, rest = rest[:n], rest[n:]
			if word := lower(token.name); word == "any" || word == "first" {
				token = standbyToken{name: word, special: true}
			}
		}
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

const spaces = " \t\n\r\f\v"

// wordLength is how many bytes of text are a number or a name without quotes.
func wordLength(text string) int {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	letter := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80 }
	n := 0
	if digit(text[0]) {
		for n < len(text) && digit(text[n]) {
			n++
		}
		return n
	}
	for n < len(text) && (letter(text[n]) || n > 0 && (digit(text[n]) || text[n] == '$')) {
		n++
	}
	return n
}

// unquote reads to the closing quote; two quotes are one within the name.
func unquote(text string) (name, rest string, err error) {
	for {
		part, after, closed := strings.Cut(text, `"`)
		name += part
		if !closed {
			return "", "", errListSyntax
		}
		if !strings.HasPrefix(after, `"`) {
			return name, after, nil
		}
		name, text = name+`"`, after[1:]
	}
}

// lower folds the case of ASCII letters: a standby's name has no others.
func lower(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

// ListedStandbys returns the names in a value of synchronous_standby_names if commits wait
// for each of them. Otherwise the error wraps ErrNotSynchronous and says what to do.
func ListedStandbys(setting string) ([]string, error) {
	refuse := func(format string, args ...any) ([]string, error) {
		return nil, fmt.Errorf("%w: synchronous_standby_names is '%s': %s", ErrNotSynchronous, setting, fmt.Sprintf(format, args...))
	}
	list, err := parseStandbys(setting)
	switch {
	case err != nil:
		return refuse("%v", err)
	case len(list.names) == 0:
		return refuse("name each standby that may be promoted, as in 'FIRST 2 (s1, s2)'")
	case slices.Contains(list.names, "*"):
		return refuse("* is any standby: name each that may be promoted, as in 'FIRST 2 (s1, s2)'")
	case list.need != len(list.names):
		return refuse("commits wait for %d of %d standbys: have them wait for all, as by 'FIRST %d (…)', or name fewer",
			list.need, len(list.names), len(list.names))
	}
	for i, name := range list.names {
		if slices.ContainsFunc(list.names[:i], func(other string) bool { return lower(other) == lower(name) }) {
			return refuse("it names %q twice", name)
		}
	}
	return list.names, nil
}

// A sender is a standby, or whatever else streams from the server.
type sender struct {
	Name   string `json:"name"`
	Behind bool   `json:"behind"` // false also if the role may not see it
}

// senders decodes what SynchronousStandbys lists.
func senders(text string) (all []sender, err error) {
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("elector: the list of standbys that stream from the server: %w", err)
	}
	return all, nil
}

// named are those of a name, in which the case of letters does not matter.
func named(all []sender, name string) (some []sender) {
	for _, one := range all {
		if lower(one.Name) == lower(name) {
			some = append(some, one)
		}
	}
	return some
}

// checkStreams returns an error that wraps ErrNotSynchronous unless each standby that
// is listed streams from the server, so that a commit can be acknowledged.
func checkStreams(listed []string, all []sender) error {
	for _, name := range listed {
		if len(named(all, name)) == 0 {
			return fmt.Errorf("%w: standby %q of synchronous_standby_names does not stream from this server: start it, or name others, "+
				"who alone may be promoted then", ErrNotSynchronous, name)
		}
	}
	return checkAlone(listed, all)
}

// checkAlone returns an error that wraps ErrNotSynchronous if two standbys have the same
// listed name: one may acknowledge, and the other be promoted.
func checkAlone(listed []string, all []sender) error {
	for _, name := range listed {
		if n := len(named(all, name)); n > 1 {
			return fmt.Errorf("%w: %d standbys call themselves %q: give each an application_name of its own "+
				"(one whose link was cut counts until wal_sender_timeout)", ErrNotSynchronous, n, name)
		}
	}
	return nil
}
