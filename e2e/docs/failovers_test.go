package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/servers.md says what a failover costs: the figures are those of the run that is
// committed. The failure names the rows that are to stand there.
func TestTheFiguresOfFailoversAreThoseOfTheRun(t *testing.T) {
	results := read(t, "../e2e/ha/RESULTS.md")
	page := strings.Join(strings.Fields(read(t, "servers.md")), " ")
	cells, overlaps, faults := map[string]string{}, map[string][]string{}, []string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (async|proxied|sync|guarded) \\| \\d+ \\| ([^|]+) \\| ([^|]+) \\| [^|]* \\| [^|]* \\| ([^|]+) \\|").FindAllStringSubmatch(results, -1) {
		fault, mode, median, longest, overlap := row[1], row[2], row[3], row[4], row[5]
		if !slices.Contains(faults, fault) {
			faults = append(faults, fault)
		}
		cells[fault+mode] = median + ", " + longest
		if overlap != "0" {
			overlaps[fault] = append(overlaps[fault], overlap+" ("+mode+")")
		}
	}
	if len(faults) < 10 {
		t.Fatalf("the run had only the faults %q", faults)
	}
	for _, fault := range faults {
		overlap := strings.Join(overlaps[fault], ", ")
		if overlap == "" {
			overlap = "0"
		}
		want := fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s |", fault, cells[fault+"async"], cells[fault+"proxied"], cells[fault+"sync"], cells[fault+"guarded"], overlap)
		if !strings.Contains(page, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("servers.md lacks %s", want)
		}
	}
	back := regexp.MustCompile(`soon after its route led to a primary: held\. (\d+ times); (median [^,]+, worst [^.]+s)\.`).FindStringSubmatch(results)
	if back == nil || !strings.Contains(page, back[1]+", "+back[2]) {
		t.Errorf("servers.md lacks %q", back)
	}
	// What was judged, and did not hold, is not a result to commit.
	if strings.Contains(results, "BROKEN") {
		t.Error("the run has broken promises")
	}
}
