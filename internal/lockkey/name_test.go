package lockkey

import (
	"strings"
	"testing"
)

func TestNamesThatDoNotShowAsTheyAreAreRefused(t *testing.T) {
	for _, good := range []string{"orders", "orders of today", "Zürich/3", "注文", "a#b", `"`, strings.Repeat("x", 1024), "e\u0301"} {
		if err := CheckName(good, 1024); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                        "0 bytes: want 1 to 1024",
		strings.Repeat("x", 1025): "1025 bytes",
		"orders\n":                "trim the name",
		" orders":                 "trim the name",
		"orders\u00a0":            "trim the name",
		"\tor ders":               "trim the name",
		"or\nders":                "U+000A at byte 2",
		"or\x00ders":              "U+0000",
		"or\x1b[2Jders":           "U+001B",
		"or\x7fders":              "U+007F",
		"or\u0085ders":            "U+0085", // C1
		"orders\u200b":            "U+200B", // zero width
		"or\u202eders":            "U+202E", // writes backwards
		"\ufefforders":            "U+FEFF", // byte order mark
		"or\u2028ders":            "U+2028",
		"or\u00a0ders":            "U+00A0", // looks like a space
		"or\xffders":              "UTF-8",
	} {
		if err := CheckName(bad, 1024); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 250 {
			t.Errorf("%.50q: %v, want %q", bad, err, want)
		}
	}
}
