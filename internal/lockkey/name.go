package lockkey

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckName returns an error unless an election, a group or a shard may have that name. Two names that
// look alike, such as "orders" and "orders\n", are two elections, and each elects a leader. So a name
// has no character that does not show, and no space at its ends.
func CheckName(name string, mostBytes int) error {
	if name == "" || len(name) > mostBytes {
		return fmt.Errorf("%.40q has %d bytes: want 1 to %d bytes", name, len(name), mostBytes)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%.40q is not UTF-8: want printable characters in UTF-8", name)
	}
	if strings.TrimSpace(name) != name {
		return fmt.Errorf("%.40q begins or ends with white space, such as the end of a line: trim the name where it is read", name)
	}
	for i, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%.40q has %U at byte %d: want printable characters, and no white space but the ASCII space", name, r, i)
		}
	}
	return nil
}
