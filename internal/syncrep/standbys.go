package syncrep

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pgelector/pgelector/internal/pgerr"
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
		if len(tokens) < 4 || !tokens[1].is("(") || tokens[0].quoted {
			return l, errListSyntax
		}
		l.need, _ = strconv.Atoi(tokens[0].name) // a name is 0, which is refused below
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

// standbyTokens reads the tokens of a list. (A regular expression would add 100 KB to each program.)
func standbyTokens(text string) (tokens []standbyToken, err error) {
	const spaces = " \t\n\r\f\v"
	for text = strings.TrimLeft(text, spaces); text != ""; text = strings.TrimLeft(text, spaces) {
		token, length := standbyToken{name: text[:1]}, 1
		switch first := text[0]; {
		case first == '"':
			token.quoted = true
			token.name, length = unquote(text)
		case strings.IndexByte(",()", first) >= 0:
			token.special = true
		case first == '*':
		case isDigit(first):
			length = run(text, isDigit)
		case isLetter(first):
			length = run(text, func(b byte) bool { return isLetter(b) || isDigit(b) || b == '$' })
		default:
			length = 0
		}
		if length == 0 {
			return nil, errListSyntax
		}
		if !token.quoted {
			token.name = text[:length]
			if word := lower(token.name); word == "any" || word == "first" {
				token = standbyToken{name: word, special: true}
			}
		}
		tokens, text = append(tokens, token), text[length:]
	}
	return tokens, nil
}

// unquote returns the quoted name that text begins with, and its length in text: 0 if the name does not end. Two quotes
// within the name are one.
func unquote(text string) (name string, length int) {
	for from := 1; ; {
		quote := strings.IndexByte(text[from:], '"')
		if quote < 0 {
			return "", 0
		}
		name += text[from : from+quote]
		from += quote + 1
		if !strings.HasPrefix(text[from:], `"`) {
			return name, from
		}
		name += `"`
		from++
	}
}

// run returns how many bytes at the beginning of text are of a kind.
func run(text string, of func(byte) bool) (n int) {
	for n < len(text) && of(text[n]) {
		n++
	}
	return n
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// isLetter reports whether a byte may begin a name: all bytes beyond ASCII may.
func isLetter(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b == '_' || b >= 0x80
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
		return nil, fmt.Errorf("%w: synchronous_standby_names is '%s': %s", pgerr.ErrNotSynchronous, setting, fmt.Sprintf(format, args...))
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

// named returns the senders with a name. The case of letters does not matter.
func named(all []sender, name string) []sender {
	return slices.DeleteFunc(slices.Clone(all), func(one sender) bool { return lower(one.Name) != lower(name) })
}

// checkStreams returns an error that wraps ErrNotSynchronous unless each standby that
// is listed streams from the server, so that a commit can be acknowledged.
func checkStreams(listed []string, all []sender) error {
	for _, name := range listed {
		if len(named(all, name)) == 0 {
			return fmt.Errorf("%w: standby %q of synchronous_standby_names does not stream from this server: start it, or remove it from the list "+
				"and never promote it", pgerr.ErrNotSynchronous, name)
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
				"(one whose link was cut counts until wal_sender_timeout)", pgerr.ErrNotSynchronous, n, name)
		}
	}
	return nil
}
