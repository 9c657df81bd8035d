//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// downloadVersion is the PostgreSQL that is downloaded where none is installed.
const downloadVersion = embeddedpostgres.V17

// download returns PostgreSQL's programs from the user's cache, and puts them there the first time. They
// suffice for everything but AddStandby. The download cannot be interrupted by ctx.
func download(ctx context.Context) (_ binaries, err error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "postgresql-"+string(downloadVersion))
	bin := binaries(filepath.Join(home, "bin"))
	if bin.complete() {
		return bin, nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	// Unpacked beside its place and put there whole: another process may be doing the same.
	unpacked, err := os.MkdirTemp(cache, "postgresql-*.tmp")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unpacked)) }()
	if err := fetchInto(unpacked); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(unpacked, "programs"), home); err != nil && !bin.complete() {
		return "", err
	}
	return bin, nil
}

// fetchInto puts the programs into dir/programs. The library has no call that only downloads: it also
// starts a server, which is stopped at once.
func fetchInto(dir string) error {
	port, err := sandbox.FreePort()
	if err != nil {
		return err
	}
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(downloadVersion).
		Port(uint32(port)).
		CachePath(filepath.Join(dir, "archive")).
		BinariesPath(filepath.Join(dir, "programs")).
		RuntimePath(filepath.Join(dir, "runtime")).
		DataPath(filepath.Join(dir, "data")).
		Logger(io.Discard))
	if err := server.Start(); err != nil {
		return err
	}
	if err := server.Stop(); err != nil {
		return fmt.Errorf("stop the server that came with the download: %w", err)
	}
	return nil
}

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
