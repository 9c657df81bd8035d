package doctor

import (
	"strings"
	"testing"
)

func TestALineBreaksBetweenWordsAndKeepsNamesAsTheyAre(t *testing.T) {
	for text, want := range map[string]string{
		"short":                  "warn  short\n",
		"role \"a  b\" is\n\tit": "warn  role \"a  b\" is it\n",
		strings.Repeat("word ", 30) + "end": "warn  " + strings.TrimSpace(strings.Repeat("word ", 19)) + "\n" +
			"      " + strings.Repeat("word ", 11) + "end\n",
		strings.Repeat("x", 120) + " y": "warn  " + strings.Repeat("x", 120) + "\n      y\n",
	} {
		var out strings.Builder
		line(&out, "warn  ", text)
		if out.String() != want {
			t.Errorf("%q is\n%swant\n%s", text, out.String(), want)
		}
	}
}
