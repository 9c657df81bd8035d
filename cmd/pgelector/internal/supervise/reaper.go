//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// A Reaper reaps every child of this process: the guards, and orphans that the kernel gives
// it. The program must not wait for processes by other means.
type Reaper struct {
	mu     sync.Mutex
	waited map[int]chan struct{} // closed when that child has ended
}

// NewReaper starts to reap, and makes this process the parent of its orphaned descendants.
// It runs until the program ends.
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

// reap reports whether children are left.
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

// sweep kills the family of a guard, and reports whether a process of it may be left.
func (r *Reaper) sweep(f family, guard int) (left bool) {
	left = r.reap()
	r.mu.Lock() // no guard starts meanwhile
	defer r.mu.Unlock()
	if f.others = r.guardsBut(guard); len(f.others) > 0 {
		left = f.lives(0)
	}
	if left {
		f.signal(syscall.SIGKILL)
	}
	return left
}

func (r *Reaper) others(guard int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.guardsBut(guard)
}

func (r *Reaper) guardsBut(guard int) (others []int) {
	for pid := range r.waited {
		if pid != guard {
			others = append(others, pid)
		}
	}
	return others
}

// start starts a process. ended is closed when the process has ended.
func (r *Reaper) start(args []string, attr *os.ProcAttr) (pid int, ended <-chan struct{}, err error) {
	program, err := program()
	if err != nil {
		return 0, nil, err
	}
	r.mu.Lock() // otherwise reap may miss it
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
