//go:build unix

package pgcluster

import (
	"archive/tar"
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
	"strings"
)

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
