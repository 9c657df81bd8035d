package browser

import (
	"errors"
	"testing"
)

func TestFind(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("PGELECTOR_BROWSER", "")
	names = names[:1]
	if path, err := Find(); !errors.Is(err, ErrNone) {
		t.Errorf("found %q, %v", path, err)
	}
	t.Setenv("PGELECTOR_BROWSER", "/opt/mine")
	if path, err := Find(); path != "/opt/mine" || err != nil {
		t.Errorf("the named browser: %q, %v", path, err)
	}
}

func TestOpenFailsIfTheBrowserDoesNotStart(t *testing.T) {
	t.Setenv("PGELECTOR_BROWSER", "/bin/false")
	if _, _, err := Open(t.Context()); err == nil {
		t.Error("no error")
	}
}
