package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// EtcdRole is the first argument of a process that runs an etcd server. A directory, the client URL and the
// peer URL follow.
const EtcdRole = "etcd"

// Etcd is a process that embeds one etcd server.
type Etcd struct {
	Endpoint string
	PID      int

	dir  string
	args []string
	cmd  *exec.Cmd
	in   io.WriteCloser
}

// EtcdMain runs the server until in ends.
func EtcdMain(in io.Reader, out io.Writer, args []string) error {
	if len(args) != 3 {
		return errors.New("etcd: want a directory and two URLs")
	}
	config := embed.NewConfig()
	config.Dir = args[0]
	config.LogLevel = "fatal"
	client, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	peer, err := url.Parse(args[2])
	if err != nil {
		return err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	<-server.Server.ReadyNotify()
	fmt.Fprintln(out, "ready", server.Clients[0].Addr())
	_, _ = io.Copy(io.Discard, in)
	return nil
}

func startEtcd(ctx context.Context) (*Etcd, error) {
	dir, err := os.MkdirTemp("", "pgelector-bench-etcd-")
	if err != nil {
		return nil, err
	}
	e := &Etcd{dir: dir, args: []string{EtcdRole, dir, "http://127.0.0.1:0", "http://127.0.0.1:0"}}
	if err := e.start(); err != nil {
		e.Stop()
		return nil, err
	}
	// A restart must use the same address.
	e.args[2] = "http://" + e.Endpoint
	return e, ctx.Err()
}

func (e *Etcd) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	e.cmd = exec.Command(program, e.args...)
	e.cmd.Stderr = os.Stderr
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if e.in, err = e.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := e.cmd.Start(); err != nil {
		return err
	}
	e.PID = e.cmd.Process.Pid
	timeout := time.AfterFunc(30*time.Second, func() { _ = e.cmd.Process.Kill() })
	defer timeout.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("etcd did not start: %w", err)
	}
	e.Endpoint = strings.TrimSpace(strings.TrimPrefix(line, "ready "))
	return nil
}

// Restart kills the server and starts it again with the same directory and address.
func (e *Etcd) Restart() error {
	e.kill()
	return e.start()
}

func (e *Etcd) kill() {
	if e.cmd != nil && e.cmd.Process != nil {
		_ = e.in.Close()
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait()
	}
}

// Stop kills the server and removes its directory.
func (e *Etcd) Stop() {
	e.kill()
	_ = os.RemoveAll(e.dir)
}
