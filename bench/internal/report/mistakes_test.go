package report

import (
	"strings"
	"testing"

	"github.com/pgelector/pgelector/bench/internal/results"
)

func TestARateWithoutMistakesIsABoundAndOneWithMistakesIsNot(t *testing.T) {
	r := &results.Results{Systems: []results.System{{Name: "one"}, {Name: "two"}}, Mistakes: []results.Mistakes{
		{System: "one", Strain: "busy", Leaders: 20, Hours: 5},
		{System: "two", Strain: "busy", Leaders: 20, Hours: 5, Lost: 7},
		{System: "two", Strain: "disk", Leaders: 20, Hours: 5, Error: "no disk"},
	}}
	p := &page{r: r}
	p.mistakes()
	for _, row := range []string{
		"| system | busy | disk |",
		"| one | 0 in 5.0 h: fewer than 0.60 an hour |  |",
		"| two | **7** in 5.0 h: 1.40 an hour | failed: no disk |",
	} {
		if !strings.Contains(p.text.String(), row+"\n") {
			t.Errorf("%s is not in\n%s", row, p.text.String())
		}
	}
}
