package docs

import (
	"os"
	"testing"
)

// The tests name files as the pages in docs/ do.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../docs"); err != nil {
		panic(err)
	}
	m.Run()
}
