package main

import "regexp"

// A step is one proof: a command, and the figures that its output and its page have.
type step struct {
	name     string
	what     string                                             // in the table of the page of evidence
	command  string                                             // for a shell at the root of the repository
	short    string                                             // the same in a minute or so, which writes no file
	repeat   string                                             // what a reader runs, if not the command
	minutes  int                                                // about, on two cores
	patterns []string                                           // with named groups, the figures; each must match the output
	page     string                                             // a file that the command writes
	cells    func(page string, figures map[string]string) error // adds its figures
	says     string                                             // with {figure} for each; no row of the table if empty
	of       *regexp.Regexp                                     // its files beside the library; nil: all
	engine   bool                                               // of the library it uses the engine alone
}

// What a step is made of, beside the library.
var (
	withoutServers = regexp.MustCompile(`^(db|elector|electortest|hooks/hookstest|internal|shard|sqlmock_test)/|^e2e/(go\.|mutation/|simulation/)`)
	clusters       = `^e2e/(go\.|(fleet|history|model|must|pgcluster|register|replay|sandbox)/[^_]*$)` // but for their tests
	ofServers      = clusters + `|^e2e/([^/]+\.go|(conformance|docscheck|fence|impostors|mimic|unruly)/)`
	onServers      = regexp.MustCompile(ofServers + `|^scripts/setup`)
	ofMigrations   = regexp.MustCompile(clusters + `|^(examples/(go\.|migrations/)|migrations/)`)
	everyTest      = regexp.MustCompile(ofServers + `|^(cmd|scripts)/`)
)

var steps = []step{
	{name: "model", what: "**Proof**: [the protocol](proof.md), for any number of candidates, by z3",
		command: "make model SEARCH=1", short: "make model", repeat: "make model", minutes: 2,
		patterns: []string{`(?P<obligations>\d+) obligations proved by z3, (?P<weakened>\d+) weakened protocols rejected by z3 and by a trace`},
		says:     "[{obligations} obligations](../e2e/model/RESULTS.md) proved; {weakened} weakened protocols rejected, each with a trace",
		of:       regexp.MustCompile(`^e2e/(go\.|model/)`), engine: true},
	{name: "replay", what: "**[Replay](proof.md#what-is-only-tested)** of a recorded run by the proved protocol",
		command: "go -C e2e test ./replay -run='Run' -all -count=1 -timeout=20m -v", short: "go -C e2e test ./replay -run=Run -count=1 -v", minutes: 5,
		patterns: []string{`replay: (?P<events>\d+) events, \d+ sessions, (?P<terms>\d+) terms`, `(?P<count_rejected>: REJECTED: event)`},
		says:     "{events} events, {terms} terms, accepted; {rejected} weakened builds rejected, each for its own reason",
		of:       regexp.MustCompile(clusters + `|^e2e/(model|replay)/`), engine: true},
	{name: "simulation", what: "**Simulation**: {kinds} kinds of faults, in virtual time",
		command: "make simulate SEEDS=10000", short: "make simulate SEEDS=300", minutes: 2,
		patterns: []string{`(?P<kinds>\d+) kinds of faults; (?P<seeds>\d+) seeds in \S+, \d+ a second, 0 failed; (?P<terms>\d+) terms`},
		says:     "{seeds} seeds, {terms} terms: no failure",
		of:       regexp.MustCompile(`^e2e/(go\.|simulation/)|^(electortest|hooks/hookstest|shard)/[^_]*$`), engine: true},
	{name: "seeds", what: "**What more seeds add**: the first seed that notices each bug planted in locks",
		command: "go -C e2e run ./mutation -first 2000 -only=internal/election", short: "go -C e2e run ./mutation -first 10 -only='instead of being closed'", minutes: 2,
		patterns: []string{`(?P<seeds>\d+) seeds notice (?P<noticed>\d+) of (?P<all>\d+) mutants: half of these by seed (?P<half>\d+), .*the last by seed (?P<last>\d+)`},
		says:     "{noticed} of {all} are noticed, half by seed {half}, the last by {last}",
		of:       regexp.MustCompile(`^e2e/(go\.|mutation/|simulation/)|^(electortest|hooks/hookstest|shard)/[^_]*$`), engine: true},
	{name: "fences", what: "**Fenced writes**: leaders are frozen between check and write",
		command: "PGELECTOR_FENCE_ROUNDS=1000 go -C e2e test . -run=FencedWrites -count=1 -timeout=2h -v",
		short:   "PGELECTOR_FENCE_ROUNDS=10 go -C e2e test . -run=FencedWrites -count=1 -v",
		repeat:  "PGELECTOR_FENCE_ROUNDS=1000 make e2e RUN=FencedWrites", minutes: 5,
		patterns: []string{
			`unfenced: \{Rounds:(?P<unfenced>\d+) .*Histories:(?P<histories>\d+) Broken:(?P<broken>\d+)\}`,
			`in tx: \{Rounds:(?P<intx>\d+) .*Broken:0\}`, `by token: \{Rounds:(?P<token>\d+) .*Broken:0\}`},
		says: "{intx} freezes with `InTx`, {token} with tokens: all linearizable. {unfenced} with neither: {broken} of {histories} histories are not",
		of:   onServers},
	{name: "torture", what: "**[Torture](../e2e/torture/main.go)** of real servers and processes, {kinds} kinds of faults",
		command: "make torture MINUTES=10", short: "make torture MINUTES=0.5", minutes: 11,
		patterns: []string{`seed \d+: (?P<faults>\d+) faults of (?P<kinds>\d+) kinds`, `no two led at once[^:]*: (?P<terms>[\d,]+) terms`, `fenced writes were linearizable: .*?(?P<writes>\d+) writes succeeded`},
		says:     "{faults} faults, {terms} terms, {writes} fenced writes, all linearizable",
		of:       regexp.MustCompile(clusters + `|^e2e/torture/[^_]*$`), engine: true},
	{name: "cluster", what: "**Failovers** with Patroni, HAProxy and PgBouncer, {kinds} kinds of faults",
		command: "make ha MINUTES=20 RESULTS=1", short: "make ha MINUTES=0.5 FAULTS=crash,switchover MODES=async,leases", repeat: "make ha MINUTES=20", minutes: 22,
		patterns: []string{`(?m)^(?P<faults>\d+) faults of (?P<kinds>\d+) kinds`, `(?P<terms>[\d,]+) terms compared`, `fenced writes were linearizable: .*?(?P<writes>\d+) writes succeeded`},
		page:     "e2e/ha/RESULTS.md", cells: failoverCells,
		says: "[{faults} faults](../e2e/ha/RESULTS.md), {terms} terms, {writes} fenced writes, all linearizable",
		of:   regexp.MustCompile(clusters + `|^e2e/ha/[^_]*$`), engine: true},
	{name: "path", what: "**Mutants of rules** in the path of one election, tried by unit tests",
		command: "go -C e2e run ./mutation -path -draw 200 -seed 1 || true", repeat: "go -C e2e run ./mutation -path",
		short: "go -C e2e run ./mutation -path -only=internal/backoff -results=/dev/null || true", minutes: 15,
		patterns: []string{`tests notice (?P<noticed>\d+) of (?P<all>\d+) mutants of rules; (?P<explained>\d+) have a reason why not, (?P<open>\d+) need a test, 0 were`},
		says:     "{noticed} of {all} are noticed, {explained} [need not](../e2e/mutation/reasons.txt), {open} are not",
		of:       withoutServers, engine: true},
	{name: "upgrade", what: "**Mixed versions**: a rolling upgrade, and back",
		command: "go -C e2e test ./upgrade -count=5 -v", short: "go -C e2e test ./upgrade -count=1 -v",
		repeat: "make proof STEPS=upgrade", minutes: 2,
		patterns: []string{`(?P<count_times>--- PASS: TestAFleetIsUpgradedProcessByProcess )`}, says: "{times} times: no failure",
		of: regexp.MustCompile(clusters + `|^(cmd|e2e/upgrade)/`)},
	{name: "matrix", what: "**Real servers**: every test over lib/pq, pgx and both, with the race detector, on the oldest PostgreSQL, and in both scopes on the newest",
		command: "make matrix MAJORS=14 SCOPE=session && make matrix MAJORS=18", short: "make matrix MAJORS=18 RUN='^TestInTxCommitsInsideTheTerm$'", minutes: 23,
		patterns: []string{`== postgres \(PostgreSQL\) (?P<list_versions>[\d.]+)`, `in transaction scope`}, says: "{versions}: no failure",
		of: everyTest},
	{name: "transfers", what: "**Transfers** beside 20 pollers",
		command: "make soak RUN=Transfers TRANSFERS=300", short: "make soak RUN=Transfers TRANSFERS=10", minutes: 3,
		patterns: []string{`(?P<transfers>\d+) transfers beside 20 pollers`}, says: "{transfers} with each driver",
		of: onServers},
	{name: "soak", what: "**Resignations**: memory, goroutines and connections stay flat",
		command: "make soak RUN='Resignations|Heartbeats' RESIGNATIONS=3000 HEARTBEATS=30000", short: "make soak RUN='Resignations|Heartbeats' RESIGNATIONS=100 HEARTBEATS=1000", minutes: 6,
		patterns: []string{`after (?P<resignations>\d+) resignations`}, says: "{resignations} with each driver",
		of: onServers},
	{name: "fuzzing", what: "**Fuzzing** of all parsers",
		command: "make fuzz TIME=20s", short: "make fuzz TIME=1s", minutes: 7,
		patterns: []string{`== \d+/(?P<targets>\d+) `}, says: "{targets} targets",
		of: regexp.MustCompile(`^(cmd|elector|electortest|fence|internal|roster|ticks)/|^e2e/(go\.|history/)|^scripts/fuzz`)},
	{name: "coverage", what: "**Coverage** of the election and its sessions",
		command: "make cover", short: "make cover RUN='^TestInTxCommitsInsideTheTerm$'", minutes: 6,
		patterns: []string{`total:\s+\(statements\)\s+(?P<percent>[\d.]+)%`}, says: "{percent} % of statements"},
	{name: "migrations", command: "go -C examples test ./migrations -run='Twenty|Comparison|Kill9TheNext' -rounds=100 -compare -count=1 -timeout=20m -v",
		short:    "go -C examples test ./migrations -run='Twenty|Comparison|Kill9TheNext' -rounds=1 -compare -count=1 -timeout=20m -v",
		minutes:  7,
		patterns: append(lockFigures(), `(?P<rounds>\d+) rounds of 20 processes: one ran each migration`),
		of:       ofMigrations, engine: true},
	{name: "ticks", command: "go -C examples test . -run='OnlyTheDeputy|EachTick' -ticks=5300 -load=5s -count=1 -timeout=20m -v",
		short:   "go -C examples test . -run='OnlyTheDeputy|EachTick' -count=1 -v",
		minutes: 8,
		patterns: []string{`(?P<ticks>\d+) ticks were done once each, over (?P<kills>\d+) kills and (?P<handovers>\d+) hand-overs`,
			`cache of (?P<cache>\S+): warm after (?P<warm>\d+ ms), cold after (?P<cold>[\d.]+ s)`},
		of: regexp.MustCompile(clusters + `|^(examples|ticks)/`), engine: true},
	{name: "rolling", command: "go -C e2e test ./rolling -run=MostTwice -count=1 -v -updates=20", short: "go -C e2e test ./rolling -run=MostTwice -count=1 -v -updates=1",
		minutes:  2,
		patterns: paceFigures(),
		of:       regexp.MustCompile(`^e2e/(go\.|rolling/)|^(electortest|hooks/hookstest)/[^_]*$`), engine: true},
	{name: "bench", command: "make bench docs", short: "go -C bench run . -quick -parts=inprocess -out=$(mktemp -d)", minutes: 44,
		page: "bench/RESULTS.md", cells: benchCells,
		of: regexp.MustCompile(`^bench/([^/]*|internal/(child|measure|member|results|servers|systems)/.*)$`)}, // bench -again writes its report anew
}
