//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// A Reaper waits for every child of this process: the guards, and whatever else
// the kernel gives it, as it does to process 1 of a container. A program that
// has one must wait for no process by other means.
type Reaper struct {
	mu     sync.Mutex
	waited map[int]chan struct{} // closed when that child has ended
}

// NewReaper starts to reap, and makes this process the parent of all its
// descendants that lose theirs. It goes on for the life of the program.
func NewReaper() (*Reaper, error) {
	if err := adopt(); err != nil {
		return nil, err
	}
	r := &Reaper{waited: make(map[int]chan struct{})}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			r.reap()
		}
	}()
	return r, nil
}

// reap reports whether there are children left.
func (r *Reaper) reap() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return reap(0, func(pid int, _ syscall.WaitStatus) {
		if done, ok := r.waited[pid]; ok {
			close(done)
			delete(r.waited, pid)
		}
	})
}

// start starts a process, and returns what is closed when it has ended.
func (r *Reaper) start(args []string, attr *os.ProcAttr) (pid int, ended <-chan struct{}, err error) {
	program, err := program()
	if err != nil {
		return 0, nil, err
	}
	r.mu.Lock() // or it might be reaped before it is known
	defer r.mu.Unlock()
	p, err := os.StartProcess(program, args, attr)
	if err != nil {
		return 0, nil, err
	}
	pid = p.Pid
	_ = p.Release()
	done := make(chan struct{})
	r.waited[pid] = done
	return pid, done, nil
}
