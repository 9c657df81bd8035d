//go:build unix

package pgcluster

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

// ErrNoPostgres is returned by Start when PostgreSQL is not installed.
var ErrNoPostgres = errors.New("pgcluster: PostgreSQL is not installed")

// howToInstall completes the message of ErrNoPostgres.
const howToInstall = "install it (Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql), " +
	"or set PGELECTOR_PG_BIN to the directory that holds postgres and initdb"

// binaries is the directory of PostgreSQL's programs.
type binaries string

func (b binaries) path(program string) string { return filepath.Join(string(b), program) }

// complete reports whether the directory has the programs that every cluster needs.
func (b binaries) complete() bool {
	for _, program := range []string{"postgres", "initdb"} {
		info, err := os.Stat(b.path(program))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// resolved follows links: a directory may link to a few programs of an installation, and the
// other programs are next to the link's target.
func (b binaries) resolved() binaries {
	postgres, err := filepath.EvalSymlinks(b.path("postgres"))
	if err != nil {
		return b
	}
	if home := binaries(filepath.Dir(postgres)); home.complete() {
		return home
	}
	return b
}

// system is the environment of the lookup. Tests replace it.
type system struct {
	getenv    func(string) string
	installed []string                                // patterns of directories; * matches a version
	pgConfig  func(context.Context) (string, error)   // returns the output of pg_config --bindir
	download  func(context.Context) (binaries, error) // nil if not allowed
}

// FindBinaries returns the directory of PostgreSQL's programs that Start would use.
func FindBinaries(ctx context.Context) (string, error) {
	b, err := findBinaries(ctx)
	return string(b), err
}

func findBinaries(ctx context.Context) (binaries, error) {
	s := system{
		getenv: os.Getenv,
		installed: []string{
			"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
			"/usr/pgsql-*/bin",                   // Red Hat, by the PostgreSQL project
			"/opt/homebrew/opt/postgresql@*/bin", // macOS
			"/usr/local/opt/postgresql@*/bin",    // macOS on Intel
		},
		pgConfig: pgConfig,
	}
	if os.Geteuid() != 0 {
		s.download = download
	}
	return s.find(ctx)
}

// find returns the first of: $PGELECTOR_PG_BIN, $PATH, the newest installed version,
// pg_config's directory, a download.
func (s system) find(ctx context.Context) (binaries, error) {
	if dir := s.getenv("PGELECTOR_PG_BIN"); dir != "" {
		if b := binaries(dir); b.complete() {
			return b, nil
		}
		return "", fmt.Errorf("pgcluster: PGELECTOR_PG_BIN=%s does not hold postgres and initdb; correct or unset it", dir)
	}
	for _, dir := range filepath.SplitList(s.getenv("PATH")) {
		if b := binaries(dir); filepath.IsAbs(dir) && b.complete() {
			return b.resolved(), nil
		}
	}
	for _, pattern := range s.installed {
		if b, ok := newest(pattern); ok {
			return b, nil
		}
	}
	if dir, err := s.pgConfig(ctx); err == nil && binaries(dir).complete() {
		return binaries(dir), nil
	}
	if s.download == nil {
		return "", fmt.Errorf("%w; %s", ErrNoPostgres, howToInstall)
	}
	b, err := s.download(ctx)
	if err != nil {
		return "", fmt.Errorf("%w, and downloading it failed (%w); %s", ErrNoPostgres, err, howToInstall)
	}
	return b, nil
}

// newest returns the complete directory with the highest version that matches the pattern.
func newest(pattern string) (binaries, bool) {
	dirs, _ := filepath.Glob(pattern) // fails only for a malformed pattern
	before, after, _ := strings.Cut(pattern, "*")
	version := func(dir string) float64 {
		v, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(dir, before), after), 64)
		return v
	}
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	for _, dir := range dirs {
		if binaries(dir).complete() {
			return binaries(dir), true
		}
	}
	return "", false
}

func pgConfig(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output()
	return strings.TrimSpace(string(out)), err
}

// downloadVersion is the PostgreSQL version to download if none is installed.
const downloadVersion = embeddedpostgres.V17

// download returns the directory of PostgreSQL's programs in the user's cache, and downloads
// them the first time. They suffice for everything except AddStandby. ctx does not interrupt
// the download.
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
	// Unpack to a temporary directory and rename it: another process may do the same.
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

// fetchInto puts the programs into dir/programs. The library cannot only download: it also
// starts a server, which fetchInto stops at once.
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
		return fmt.Errorf("stop the downloaded server: %w", err)
	}
	return nil
}

// stale is the age at which an unfinished file in the cache counts as abandoned.
const stale = time.Hour

// cacheDir returns this package's directory in the user's cache. It is the only thing that
// outlives a cluster. Files there are created as *.tmp and renamed when complete. cacheDir
// removes unfinished files of killed processes.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "pgelector")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	unfinished, _ := filepath.Glob(filepath.Join(dir, "*.tmp")) // fails only for a malformed pattern
	for _, path := range unfinished {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > stale {
			os.RemoveAll(path)
		}
	}
	return dir, nil
}

// initdb takes a second; unpacking its result takes a tenth of that. So the first start of a user and a
// PostgreSQL version stores the data directory that initdb made in the user's cache, as a tar file, and later
// starts unpack it. It is one file, so that a rename puts it in place atomically.

var initdbArgs = []string{"--username=" + superuser, "--auth=trust", "--encoding=UTF8", "--locale=C",
	"--no-sync", "--no-instructions", "--no-clean", "--wal-segsize=1"}

// initialize makes the data directory.
func (c *Cluster) initialize(ctx context.Context) error {
	template, err := c.bin.templateFile(ctx)
	if err != nil {
		return err
	}
	if err := c.unpack(template); err == nil {
		return nil
	}
	// There is no template, or a damaged one, which is replaced.
	if err := os.RemoveAll(c.dataDir()); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	if err := c.box.Run(ctx, c.bin.path("initdb"), append(initdbArgs, "--pgdata="+c.dataDir())...); err != nil {
		return err
	}
	// Without a usable cache directory every start runs initdb; that is not an error.
	_ = pack(c.dataDir(), template)
	return nil
}

// templateFile returns the path of the template for this build and these arguments, or ""
// without a cache.
func (b binaries) templateFile(ctx context.Context) (string, error) {
	version, err := exec.CommandContext(ctx, b.path("postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("pgcluster: %s --version: %w", b.path("postgres"), err)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", nil
	}
	key := sha256.Sum256([]byte(string(version) + strings.Join(initdbArgs, " ")))
	return filepath.Join(cache, "initdb-"+hex.EncodeToString(key[:6])+".tar"), nil
}

// pack writes dir into a tar file, atomically.
func pack(dir, file string) error {
	if file == "" {
		return nil
	}
	out, err := os.CreateTemp(filepath.Dir(file), "initdb-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // does nothing after the rename
	archive := tar.NewWriter(out)
	if err := errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
}

// unpack makes the data directory from a template.
func (c *Cluster) unpack(file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := c.box.Mkdir(c.dataDir()); err != nil {
		return err
	}
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.unpackEntry(header, archive); err != nil {
			return err
		}
	}
}

func (c *Cluster) unpackEntry(header *tar.Header, content io.Reader) error {
	if !filepath.IsLocal(header.Name) {
		return fmt.Errorf("template holds %q", header.Name)
	}
	path := filepath.Join(c.dataDir(), header.Name)
	mode := header.FileInfo().Mode()
	if mode.IsDir() {
		if header.Name == "." {
			return nil
		}
		return c.box.Mkdir(path)
	}
	if mode.Type()&fs.ModeType != 0 {
		return fmt.Errorf("template holds %q, which is not a regular file", header.Name)
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close(), c.box.Own(path))
}
