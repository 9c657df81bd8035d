//go:build unix

package supervise

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"
)

// outputGrace is how long processes that a program has started may keep its output open after ctx has ended.
const outputGrace = 100 * time.Millisecond

// Output runs a program in a process group of its own, beside the commands, and returns what it writes. It
// kills the group when ctx ends. Output does not know whether the program has succeeded, because the
// Reaper takes its status. So let the program write its status.
func (r *Reaper) Output(ctx context.Context, most int, argv ...string) (text []byte, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	r.mu.Lock() // otherwise reap may miss it, and it may inherit the files of a guard
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Files: []*os.File{nil, in, in}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err == nil {
		r.waited[p.Pid] = make(chan struct{})
	}
	r.mu.Unlock()
	_ = in.Close()
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, left := r.waited[p.Pid]; left { // so its id is not reused
			_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
		}
		_ = out.SetReadDeadline(time.Now().Add(outputGrace))
	})()
	for buffer := make([]byte, 4096); ; {
		n, err := out.Read(buffer)
		text = append(text, buffer[:n]...)
		text = text[max(0, len(text)-most):]
		switch {
		case err == io.EOF:
			return text, nil
		case err != nil:
			return text, err
		}
	}
}
