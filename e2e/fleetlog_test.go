//go:build unix

package e2e_test

import "testing"

// print shows what a failed test was told, without what fills pages.
func (f *fleet) print(t *testing.T) {
	t.Helper()
	for _, e := range f.told() {
		if e.Kind != renewed && e.Kind != believed {
			t.Logf("%+v", e)
		}
	}
}
