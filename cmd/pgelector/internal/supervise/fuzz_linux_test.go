package supervise

import (
	"fmt"
	"strings"
	"testing"
)

// A process chooses its own name, even with parentheses and line ends. The name must not
// change the parsed parent.
func FuzzAProcessIsReadWhateverItsName(f *testing.F) {
	f.Add("sh", 7, 1, 7, byte('S'))
	f.Add("a) Z 1 1 (b", 7, 3, 3, byte('R'))
	f.Add("(((", 1, 0, 1, byte('Z'))
	f.Add("\n) X 2 2\n", 1<<22, 9, 9, byte('X'))
	f.Add("sh", -77, -12, -92, byte('R'))
	f.Fuzz(func(t *testing.T, name string, pid, parent, group int, state byte) {
		if !strings.ContainsRune("RSDZTtWXxKPI", rune(state)) {
			t.Skip("no state of a process")
		}
		want := process{pid: pid, parent: parent, group: group, zombie: state == 'Z' || state == 'X'}
		got, ok := parseStat([]byte(fmt.Sprintf("%d (%s) %c %d %d 7 0 -1 4194304 145 0\n", pid, name, state, parent, group)))
		if !ok || got != want {
			t.Errorf("got %+v, %t, want %+v", got, ok, want)
		}
	})
}

func FuzzNoStatMakesAPanic(f *testing.F) {
	for _, stat := range []string{"7 (sh) S 1 7", ")(", "", "0", "1()B", "-()", "\n\r()", "7() 000 1", "7\x00()", "7\xe4\xe4()", "7()80 \xd9\xe2", "10000000000000000000()", "10()0A 08", "0208 08()"} {
		f.Add([]byte(stat))
	}
	f.Fuzz(func(t *testing.T, stat []byte) {
		p, ok := parseStat(stat)
		state := 'S'
		if p.zombie {
			state = 'Z'
		}
		if again, _ := parseStat(fmt.Appendf(nil, "%d (sh) %c %d %d", p.pid, state, p.parent, p.group)); ok && again != p {
			t.Errorf("%q is %+v, and written as the kernel writes it %+v", stat, p, again)
		}
	})
}
