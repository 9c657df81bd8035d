package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// The servers that candidates can use in place of PostgreSQL, which has no name.
const (
	Etcd       = "etcd"
	Consul     = "consul"
	Kubernetes = "kube-apiserver"
)

// Process is one of them.
type Process struct {
	Endpoint string // its host and port

	pid   int
	dir   string   // its data, and its output in the file log
	args  []string // the program first
	ready string   // a URL that it answers once it is ready
	cmd   *exec.Cmd
	ended chan struct{}
}

// Launch starts a server. It builds its program first, unless it has been built before.
func (s *Servers) Launch(ctx context.Context, name string) error {
	dir, err := os.MkdirTemp("", "pgelector-bench-"+name+"-")
	if err != nil {
		return err
	}
	p := &Process{dir: dir}
	s.others[name] = p
	port, err := sandbox.FreePort()
	if err != nil {
		return err
	}
	p.Endpoint = net.JoinHostPort(sandbox.Loopback, strconv.Itoa(port))
	program, err := os.Executable()
	if _, built := Programs[name]; built {
		program, err = Build(ctx, name)
	}
	if err != nil {
		return err
	}
	switch name {
	case Etcd:
		p.etcd(program)
	case Consul:
		err = p.consul(program, port)
	case Kubernetes:
		err = p.kubernetes(program, port, s.others[Etcd].Endpoint)
	}
	if err != nil {
		return err
	}
	return p.start(ctx)
}

// start starts the program and waits until it is ready.
func (p *Process) start(ctx context.Context) error {
	name := filepath.Join(p.dir, "log")
	log, err := os.Create(name)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.pid, p.ended = p.cmd.Process.Pid, make(chan struct{})
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // a second on an idle machine
	defer cancel()
	for !p.answers(ctx) {
		select {
		case <-p.ended:
			cancel()
		default:
		}
		if ctx.Err() != nil {
			text, _ := os.ReadFile(name) // for the message
			return fmt.Errorf("%s did not start: %s", p.args[0], lastLine(text))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// Token authenticates the candidates to kube-apiserver. The other servers ignore it.
const Token = "bench"

// probes reads what answers, whose certificate it has made itself.
var probes = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
	DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func (p *Process) answers(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, nil)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", "Bearer "+Token)
	answer, err := probes.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// restart kills the server and starts it again with the same directory and address.
func (p *Process) restart(ctx context.Context) error {
	p.kill()
	return p.start(ctx)
}

func (p *Process) kill() {
	if p.ended != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// stop kills the server and removes its directory.
func (p *Process) stop() {
	p.kill()
	_ = os.RemoveAll(p.dir)
}

// EtcdRole is the first argument of a process that runs an etcd server. A directory and the client URL follow.
const EtcdRole = "etcd"

// EtcdMain runs the server.
func EtcdMain(args []string) error {
	if len(args) != 2 {
		return errors.New("etcd: want a directory and a URL")
	}
	config := embed.NewConfig()
	config.Dir = args[0]
	config.LogLevel = "fatal"
	client, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	return <-server.Err()
}

func (p *Process) etcd(program string) {
	address := "http://" + p.Endpoint
	p.args, p.ready = []string{program, EtcdRole, p.dir, address}, address+"/health"
}
