package main

// The kinds of code, and their bounds. A bound may only fall, but for a reason that its commit says.

// A group is packages whose figures are added.
type group struct {
	name     string
	packages []string
	code     int // lines of code, at most; 0: no bound
}

var (
	kernel    = []string{"internal/election"}
	under     = []string{"internal/backoff", "internal/gate", "internal/idle", "internal/lease", "internal/lockkey", "internal/pgerr", "internal/pin"}
	answerers = []string{"internal/seat", "internal/shared", "internal/transaction"}
	asks      = []string{"internal/holder", "internal/live", "internal/pooled", "internal/queue", "internal/tenure"}
	parts     = []string{"internal/deputy", "internal/fenced", "internal/handover", "internal/inbox", "internal/listen", "internal/lockdelay",
		"internal/preference", "internal/preflight", "internal/promotion", "internal/syncrep", "internal/validate", "internal/wakeup"}
	api = []string{"elector"}

	notCore = []string{"internal/drivertest", "internal/tables"}
)

// What is above the goal of the kernel with what it stands on, 2,200 lines of code, decides what is done when something fails:
// a driver that does not return (pin), a silent idle connection (idle), which refusals are final, an unlock whose answer is lost.
const (
	mostKernel     = 2000
	mostWithUnder  = 2940
	mostCore       = 11130
	mostFile       = 300 // lines
	mostFields     = 16  // of a struct, with those that it embeds
	mostMethods    = 40  // of a type, with those that it embeds
	mostEnterFiles = 64  // with code that a default election runs
)

// long are the files that may be longer, each with its bound.
var long = map[string]int{
	"elector/options.go":                  880, // options, and their contracts
	"internal/election/election.go":       330,
	"internal/election/session.go":        331,
	"internal/transaction/transaction.go": 402, // all answers of one scope
	"internal/syncrep/commits.go":         320,
	"internal/shared/worker.go":           325,
	"internal/deputy/deputy.go":           328,
}

// A reach is how many fields and methods a type has, with those that it embeds.
type reach struct{ fields, methods int }

// wide are the types that may have more in reach, each with its bound.
var wide = map[string]reach{
	"elector.config":    {31, 40}, // options
	"elector.Settings":  {19, 40}, // options, as users see them
	"election.Election": {18, 40}, // embeds its options
	"election.Session":  {17, 53}, // what the kernel does with a connection, and what parts may ask of it
	"elector.candidate": {45, 40}, // embeds the options, and is embedded by the next four
	"elector.Elector":   {62, 64},
	"elector.Term":      {61, 53},
	"elector.observer":  {63, 70},
	"elector.attempts":  {64, 66},
}
