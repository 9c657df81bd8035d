package child

import (
	"runtime"
	"runtime/debug"
)

// A Strain is what a process endures although neither server nor network has a fault.
type Strain string

// The strains, in the order of the tables.
const (
	Quota     Strain = "a CPU quota of 10 % of a core" // which its parent sets; the process uses all of it
	Busy      Strain = "GOMAXPROCS=1, four busy goroutines"
	Collector Strain = "a memory limit, the collector at work"  // the heap is almost as large as the limit
	Disk      Strain = "the servers' disk stands still for 3 s" // again and again, by the parent
)

const (
	memoryLimit = 64 << 20
	live        = 56 << 20
)

// begin puts this process under a strain. It lasts until the process ends.
func (s Strain) begin() {
	switch s {
	case Quota:
		go spin()
	case Busy:
		runtime.GOMAXPROCS(1)
		for range 4 {
			go spin()
		}
	case Collector:
		debug.SetMemoryLimit(memoryLimit)
		go allocate()
	}
}

func spin() {
	for n := uint64(0); ; n++ {
		_ = n * n
	}
}

// allocate keeps a heap of almost the memory limit, and replaces a part of it for ever.
func allocate() {
	const block = 64 << 10
	heap := make([][]byte, live/block)
	for i := 0; ; i = (i + 1) % len(heap) {
		heap[i] = make([]byte, block)
	}
}
