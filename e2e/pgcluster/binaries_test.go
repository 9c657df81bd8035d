//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBinariesAreFoundInTheDocumentedOrder(t *testing.T) {
	const nowhere = "nowhere"
	tests := []struct {
		name               string
		holds              []string // directories that hold postgres and initdb
		variable, path     string
		pgConfig, download string
		want               string // a directory, or part of an error
	}{
		{name: "the variable comes first", holds: []string{"own", "path", "lib/15/bin"}, variable: "own", path: "path", want: "own"},
		{name: "a wrong variable is an error", holds: []string{"path"}, variable: nowhere, path: "path", want: "does not hold postgres and initdb"},
		{name: "the path comes second", holds: []string{"path", "lib/15/bin"}, path: "path", want: "path"},
		{name: "links in the path are followed", holds: []string{"lib/14/bin", "lib/18/bin"}, path: "links", want: "lib/18/bin"},
		{name: "the newest installed version", holds: []string{"lib/9.6/bin", "lib/14/bin", "lib/18/bin", "lib/17/bin"}, path: nowhere, want: "lib/18/bin"},
		{name: "an incomplete version is passed over", holds: []string{"lib/14/bin"}, pgConfig: "lib/18/bin", want: "lib/14/bin"},
		{name: "pg_config", holds: []string{"elsewhere"}, pgConfig: "elsewhere", download: "fetched", want: "elsewhere"},
		{name: "a download comes last", pgConfig: nowhere, download: "fetched", want: "fetched"},
		{name: "nothing and no download", want: "apt-get install postgresql"},
		{name: "a failed download", download: "error", want: "no network"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			check(t, os.MkdirAll(filepath.Join(root, "lib/19/bin"), 0o700)) // installed without the server
			linkBinaries(t, filepath.Join(root, "lib/18/bin"), filepath.Join(root, "links"))
			for _, dir := range test.holds {
				fakeBinaries(t, filepath.Join(root, dir))
			}
			at := func(dir string) string {
				if dir == "" {
					return ""
				}
				return filepath.Join(root, dir)
			}
			s := system{
				getenv: func(name string) string {
					return map[string]string{"PGELECTOR_PG_BIN": at(test.variable), "PATH": "relative:" + at(test.path)}[name]
				},
				installed: []string{at("none/*/bin"), at("lib/*/bin")},
				pgConfig: func(context.Context) (string, error) {
					if test.pgConfig == "" {
						return "", os.ErrNotExist
					}
					return at(test.pgConfig), nil
				},
			}
			switch test.download {
			case "":
			case "error":
				s.download = func(context.Context) (binaries, error) { return "", errors.New("no network") }
			default:
				s.download = func(context.Context) (binaries, error) { return binaries(at(test.download)), nil }
			}
			got, err := s.find(t.Context())
			if err == nil && string(got) != at(test.want) {
				t.Errorf("found %s, want %s", got, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
			if err != nil && test.variable == "" && !errors.Is(err, ErrNoPostgres) {
				t.Errorf("error %v is not ErrNoPostgres", err)
			}
		})
	}
}

func fakeBinaries(t *testing.T, dir string) {
	t.Helper()
	check(t, os.MkdirAll(dir, 0o700))
	for _, program := range []string{"postgres", "initdb"} {
		check(t, os.WriteFile(filepath.Join(dir, program), nil, 0o700))
	}
}

func linkBinaries(t *testing.T, from, to string) {
	t.Helper()
	check(t, os.MkdirAll(to, 0o700))
	for _, program := range []string{"postgres", "initdb"} {
		check(t, os.Symlink(filepath.Join(from, program), filepath.Join(to, program)))
	}
}
