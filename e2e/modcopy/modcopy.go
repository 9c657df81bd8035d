// Package modcopy copies this module, for those who break the copy on purpose.
package modcopy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// To copies the files that are under version control, or could be, from the working
// directory, which is the module's root, to dir.
func To(dir string) error {
	names, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.Lines(string(names)) {
		name = strings.TrimSpace(name)
		content, err := os.ReadFile(name)
		if err != nil {
			continue // it was removed
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
