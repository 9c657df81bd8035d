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
	r.Commit, r.Kept = "2", []results.Kept{{Commit: "1", Rows: []results.Row{r.Mistakes[0].Row()}}}
	p := &page{r: r}
	p.head()
	p.mistakes()
	for _, row := range []string{
		"Not of this run are the mistakes of *one*: these are of `` at commit 1 on 1 January 0001.",
		"| system | busy | disk | commit |",
		"| one | 0 in 5.0 h: fewer than 0.60 an hour |  | 1 |",
		"| two | **7** in 5.0 h: 1.40 an hour | failed: no disk | 2 |",
	} {
		if !strings.Contains(p.text.String(), row+"\n") {
			t.Errorf("%s is not in\n%s", row, p.text.String())
		}
	}
}
