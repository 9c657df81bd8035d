package servers

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// A program is a server that go build makes of its module. Go's checksum database has the hashes of the versions.
type program struct {
	Module, Version string

	folder string // of the main package
	pins   string // another module that it needs, if the version that it asks for cannot be verified
}

// Programs are the servers that are built. They run only while systems that use them are measured: they would
// disturb the others.
var Programs = map[string]program{
	Consul: {Module: "github.com/hashicorp/consul", Version: "v1.21.0",
		pins: "github.com/hashicorp/consul-awsauth@v0.0.0-20250825122907-9e35fe9ded3a"},
	Kubernetes: {Module: "k8s.io/kubernetes", Version: "v1.37.2", folder: "/cmd/kube-apiserver"},
}

// Build builds a server, which takes some minutes, unless the user's cache has it. It returns the program's path.
func Build(ctx context.Context, name string) (file string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	p := Programs[name]
	dir := filepath.Join(cache, "pgelector", name+"-"+p.Version+"-"+runtime.Version())
	file = filepath.Join(dir, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s cannot be built: %w", p.Module, p.Version, err)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module server\n"), 0o600); err != nil {
		return "", err
	}
	require := []string{"mod", "edit", "-require=" + p.Module + "@" + p.Version}
	if p.pins != "" {
		require = append(require, "-require="+p.pins)
	}
	replace, err := p.replaced(ctx, dir)
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{append(require, replace...),
		{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", name + ".new", p.Module + p.folder}} {
		if _, err := goTool(ctx, dir, args...); err != nil {
			return "", err
		}
	}
	return file, os.Rename(file+".new", file)
}

// replaced returns the arguments that replace Kubernetes' own modules. Its go.mod replaces them with directories,
// which is ignored here. Version v1.x.y of Kubernetes has version v0.x.y of them.
func (p program) replaced(ctx context.Context, dir string) (args []string, err error) {
	file, err := goTool(ctx, dir, "list", "-m", "-f={{.GoMod}}", p.Module+"@"+p.Version)
	if err != nil {
		return nil, err
	}
	text, err := goTool(ctx, dir, "mod", "edit", "-json", strings.TrimSpace(file))
	if err != nil {
		return nil, err
	}
	var module struct {
		Replace []struct{ Old struct{ Path string } }
	}
	err = json.Unmarshal([]byte(text), &module)
	for _, r := range module.Replace {
		if strings.HasPrefix(r.Old.Path, "k8s.io/") {
			args = append(args, "-replace="+r.Old.Path+"="+r.Old.Path+"@v0"+strings.TrimPrefix(p.Version, "v1"))
		}
	}
	return args, err
}

// goTool runs go in a directory and returns its output.
func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w: %s", args[0], err, lastLine(failure.Bytes()))
	}
	return string(out), err
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

func (p *Process) consul(program string, port int) error {
	p.args = []string{program, "agent", "-server", "-bootstrap-expect=1", "-node=bench", "-data-dir=" + p.dir, "-log-level=error",
		"-bind=" + sandbox.Loopback, "-client=" + sandbox.Loopback, fmt.Sprint("-http-port=", port), "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1",
		"-serf-wan-port=-1", "-hcl=disable_update_check = true", "-hcl=performance { raft_multiplier = 1 }"}
	for _, flag := range []string{"-server-port=", "-serf-lan-port="} {
		port, err := sandbox.FreePort()
		if err != nil {
			return err
		}
		p.args = append(p.args, fmt.Sprint(flag, port))
	}
	p.ready = "http://" + p.Endpoint + "/v1/session/list" // an error until there is a leader
	return nil
}

func (p *Process) kubernetes(program string, port int, etcd string) error {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(secret)
	if err != nil {
		return err
	}
	key, tokens := filepath.Join(p.dir, "key.pem"), filepath.Join(p.dir, "tokens.csv")
	for file, text := range map[string][]byte{
		key:    pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		tokens: []byte(Token + ",bench,bench\n"),
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	p.args = []string{program, "--etcd-servers=http://" + etcd, "--bind-address=" + sandbox.Loopback, "--advertise-address=" + sandbox.Loopback,
		fmt.Sprint("--secure-port=", port), "--cert-dir=" + p.dir, "--token-auth-file=" + tokens, "--authorization-mode=AlwaysAllow",
		"--service-account-issuer=https://bench", "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"} // which refuse a loopback address
	p.ready = "https://" + p.Endpoint + "/api/v1/namespaces/default" // which it creates
	return nil
}
