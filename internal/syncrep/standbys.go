package syncrep

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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

// standbyWord is one token after spaces: a quoted name, a separator, or a number or name.
var standbyWord = regexp.MustCompile(`^[ \t\n\r\f\v]*(?:"((?:[^"]|"")*)"|([,()])|(\*|[0-9]+|[a-zA-Z_[:^ascii:]][a-zA-Z0-9_$[:^ascii:]]*))[ \t\n\r\f\v]*`)

func standbyTokens(text string) (tokens []standbyToken, err error) {
	for text = strings.TrimLeft(text, " \t\n\r\f\v"); text != ""; {
		m := standbyWord.FindStringSubmatchIndex(text)
		if m == nil {
			return nil, errListSyntax
		}
		var token standbyToken
		switch {
		case m[2] >= 0:
			token = standbyToken{name: strings.ReplaceAll(text[m[2]:m[3]], `""`, `"`), quoted: true}
		case m[4] >= 0:
			token = standbyToken{name: text[m[4]:m[5]], special: true}
		default:
			token.name = text[m[6]:m[7]]
			if word := lower(token.name); word == "any" || word == "first" {
				token = standbyToken{name: word, special: true}
			}
		}
		tokens, text = append(tokens, token), text[m[1]:]
	}
	return tokens, nil
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

// named are those of a name, in which the case of letters does not matter.
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
