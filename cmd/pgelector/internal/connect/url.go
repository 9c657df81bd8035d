package connect

import (
	"errors"
	"regexp"
	"strings"
)

const encode = "percent-encode the password (@ as %40, / as %2F, : as %3A, ? as %3F, # as %23, % as %25)"

var (
	// errSplit is returned for a URL in which the driver takes a part of the password for something else.
	errSplit = errors.New("the URL has an @ or a / that is not percent-encoded, and so may have been split inside the password: " + encode)
	// errName is returned for a parameter that no server can have.
	errName = errors.New("it has a parameter whose name is not valid, so it may have been split inside the password: in pairs quote the password ('…'), and in a URL " + encode)
)

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// split reports whether a URL may have been split inside its password. In the URL that was meant, an @
// follows the password. So there is an @ left after the one that the driver takes for the end of the
// password, or the driver has found that end in the parameters. An @ elsewhere must be
// percent-encoded, except the @ of a socket in the abstract namespace: host=@name.
func split(dsn, driver string) bool {
	if !isURL(dsn) {
		return false
	}
	_, rest, _ := strings.Cut(dsn, "://")
	if driver == PGX { // as in libpq, the first @ before the path
		if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
			if _, query, found := strings.Cut(rest[:i], "?"); found && strings.Contains(query, "=") {
				return true
			}
			rest = rest[i+1:]
		}
	} else { // the last @ before the path and the parameters; lib/pq ignores what follows a #
		authority := rest
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			authority = rest[:i]
		}
		if rest = rest[strings.LastIndex(authority, "@")+1:]; strings.Contains(rest, "#") {
			return true
		}
	}
	location, query, _ := strings.Cut(rest, "?")
	if strings.Contains(location, "@") || strings.Count(location, "/") > 1 {
		return true
	}
	for parameter := range strings.SplitSeq(query, "&") {
		if strings.Contains(strings.TrimPrefix(parameter, "host=@"), "@") {
			return true
		}
	}
	return false
}

// dsnInText is a connection string inside another text, from where its password begins.
var dsnInText = regexp.MustCompile(`(?is)(postgres(ql)?://[^@/?#\s]*:|password\s*=).*`)

// HideDSN removes a connection string with a password from a text, and what follows it.
func HideDSN(text string) string { return dsnInText.ReplaceAllString(text, "${1}********") }

// parameterName is what names a setting of PostgreSQL.
var parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)*$`)

// checkNames returns errName if no server can have one of the parameters.
func checkNames(parameters map[string]string) error {
	for name := range parameters {
		if !parameterName.MatchString(name) {
			return errName
		}
	}
	return nil
}

// doubtful returns the parameters of pairs that follow a password. If its spaces are not quoted, their
// names are parts of it, and a server repeats a name that it does not know. Of a URL there are
// none: split has refused it.
func doubtful(dsn string, parameters map[string]string) (names []string) {
	_, after, found := strings.Cut(dsn, "password")
	if !found || isURL(dsn) {
		return nil
	}
	for name := range parameters {
		if len(name) >= shortestSecret && strings.Contains(after, name) {
			names = append(names, name)
		}
	}
	return names
}
