package elector

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTheDefaultCandidateIDIsHostPidAndRandom(t *testing.T) {
	c, err := configure[Option]("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(fmt.Sprintf(`^[!-~]+-%d-[0-9a-f]{6}$`, os.Getpid()))
	if !shape.MatchString(c.candidateID) {
		t.Errorf("got %q", c.candidateID)
	}
	if other, _ := configure[Option]("orders", nil); other.candidateID == c.candidateID {
		t.Errorf("two candidates are %q", c.candidateID)
	}
}

func TestAnAbsurdHostNameMakesAGoodCandidateIDToo(t *testing.T) {
	for host, want := range map[string]string{
		"web-1":                  "web-1-",
		"":                       "host-",
		"my host\t1":             "my-host-1-",
		"hôte":                   "h-te-",
		"~me":                    "~me-",
		"\x00\xff\xfe":           "----",
		"日本":                     "---",
		strings.Repeat("x", 500): "xxxxxxxx",
	} {
		id := newCandidateID(host)
		if err := WithCandidateID(id).apply(&config{}); err != nil || !strings.HasPrefix(id, want) {
			t.Errorf("%q: got %q, %v", host, id, err)
		}
		if !strings.Contains(id, fmt.Sprintf("-%d-", os.Getpid())) {
			t.Errorf("%q: got %q: no process id", host, id)
		}
	}
}

func FuzzNewCandidateID(f *testing.F) {
	for _, host := range []string{"web-1", "", "삢", "000 00 000", "\xf2\xbe\xbf\xd2", "00\xf40", " " + strings.Repeat("0", 32), " " + strings.Repeat("0", 128)} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if err := WithCandidateID(newCandidateID(host)).apply(&config{}); err != nil {
			t.Error(err)
		}
	})
}
