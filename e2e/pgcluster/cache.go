//go:build unix

package pgcluster

import (
	"os"
	"path/filepath"
	"time"
)

// stale is the age at which something unfinished in the cache is taken for abandoned.
const stale = time.Hour

// cacheDir returns the directory below the user's cache where things are kept from one process to the
// next. It is the only thing that outlives a cluster. What is put there is made as *.tmp and renamed when
// it is whole; what a killed process left unfinished is removed here.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "pgelector")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	unfinished, _ := filepath.Glob(filepath.Join(dir, "*.tmp")) // fails for a malformed pattern only
	for _, path := range unfinished {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > stale {
			os.RemoveAll(path)
		}
	}
	return dir, nil
}
