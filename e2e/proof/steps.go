package main

// A step is one proof: a command, and the figures that its output or pages have.
type step struct {
	name     string
	what     string   // in the table of the page
	command  string   // for a shell at the root of the repository
	repeat   string   // what a reader runs, if not the command
	takes    string   // about, on two cores
	pages    []string // files that the command writes, which may have figures too
	patterns []string // with named groups, the figures; each must match
	says     string   // with {figure} for each; no cell of the table if empty
}

var steps = []step{
	{name: "model", what: "**Model**: [the protocol](model/fence.pml) in Promela, all states searched by spin",
		command: "make model", takes: "1 min",
		patterns: []string{`no two writers in (?P<states>\d+) states`, `(?P<count_weakened>(?m)^ok    without )`},
		says:     "{states} states; each of {weakened} weakened protocols has two writers"},
	{name: "simulation", what: "**Simulation**: candidates of every kind and 19 kinds of faults, drawn from a seed, in virtual time",
		command: "make simulate SEEDS=100000", takes: "25 min",
		patterns: []string{`(?P<seeds>\d+) seeds in \S+, \d+ a second, 0 failed; (?P<terms>\d+) terms`},
		says:     "{seeds} seeds, {terms} terms: no failure"},
	{name: "fences", what: "**Fenced writes**: leaders are frozen between check and write",
		command: "PGELECTOR_FENCE_ROUNDS=1000 go -C e2e test . -run=FencedWrites -count=1 -timeout=2h -v", repeat: "PGELECTOR_FENCE_ROUNDS=1000 make e2e RUN=FencedWrites", takes: "30 min",
		patterns: []string{
			`unfenced: \{Rounds:(?P<unfenced>\d+) .*Histories:(?P<histories>\d+) Broken:(?P<broken>\d+)\}`,
			`InTx: \{Rounds:(?P<intx>\d+) .*Broken:0\}`, `token: \{Rounds:(?P<token>\d+) .*Broken:0\}`},
		says: "{intx} freezes for `InTx` and {token} for the token: all linearizable. {unfenced} without either: {broken} of {histories} histories are not"},
	{name: "torture", what: "**Torture**: real servers, processes, drivers and networks, 22 kinds of faults",
		command: "make torture MINUTES=60", takes: "65 min",
		patterns: []string{`seed \d+: (?P<faults>\d+) faults`, `no two led at once: (?P<terms>[\d,]+) terms`, `fenced writes were linearizable: .*?(?P<writes>\d+) writes succeeded`},
		says:     "[one hour](../e2e/torture/RESULTS.md#a-run): {faults} faults, {terms} terms, {writes} fenced writes, all linearizable"},
	{name: "cluster", what: "**Failovers of a cluster**: Patroni, etcd, HAProxy and PgBouncer, 11 kinds of faults",
		command: "make ha MINUTES=32 RESULTS=1", repeat: "make ha MINUTES=32", takes: "40 min", pages: []string{"e2e/ha/RESULTS.md"},
		patterns: []string{`(?P<faults>\d+) faults`, `(?P<terms>[\d,]+) terms compared`, `fenced writes were linearizable: .*?(?P<writes>\d+) writes succeeded`},
		says:     "[32 minutes](../e2e/ha/RESULTS.md): {faults} faults, {terms} terms, {writes} fenced writes, all linearizable"},
	{name: "mutants", what: "**Mutations**: the library is broken on purpose",
		command: "make mutate", takes: "15 min", pages: []string{"e2e/mutation/RESULTS.md"},
		patterns: []string{`Tests notice (?P<noticed>\d+) of (?P<all>\d+) mutants written by hand`},
		says:     "[{noticed} of {all}](../e2e/mutation/RESULTS.md) by hand are noticed"},
	{name: "rules", what: "**Mutants of rules**: broken wherever a rule applies",
		command: "make mutate RULES=1", takes: "75 min", pages: []string{"e2e/mutation/RESULTS.md"},
		patterns: []string{`Tests notice (?P<noticed>\d+) of (?P<all>\d+) mutants\. `},
		says:     "{noticed} of {all} are noticed, [with reasons](../e2e/mutation/RESULTS.md#mutants-of-rules) for the rest"},
	{name: "servers", what: "**Real servers**: every test over lib/pq, pgx and both mixed, with the race detector",
		command: "make e2e COUNT=10", takes: "60 min",
		patterns: []string{`(?m)^ok\s+github.com/pgelector/pgelector/e2e\s`}, says: "ten times: no failure"},
	{name: "upgrade", what: "**Mixed versions**: a rolling upgrade, and back",
		command: "PGELECTOR_UPGRADE=1 go -C e2e test ./upgrade -count=5 -v", repeat: "make proof STEPS=upgrade", takes: "2 min",
		patterns: []string{`(?P<count_times>--- PASS: TestAFleetIsUpgradedProcessByProcess )`}, says: "{times} times: no failure"},
	{name: "matrix", what: "**Versions of PostgreSQL**: the same tests",
		command: "make matrix", takes: "120 min",
		patterns: []string{`== postgres \(PostgreSQL\) (?P<list_versions>[\d.]+)`}, says: "{versions}: no failure"},
	{name: "soak", what: "**Transfers**: memory, goroutines and connections stay flat",
		command: "make soak", takes: "60 min",
		patterns: []string{`after (?P<transfers>\d+) hand-overs`}, says: "[{transfers} with each driver](../e2e/torture/RESULTS.md#ten-thousand-hand-overs)"},
	{name: "fuzzing", what: "**Fuzzing** of everything that parses",
		command: "make fuzz TIME=5m", takes: "80 min",
		patterns: []string{`== \d+/(?P<targets>\d+) `}, says: "{targets} targets"},
	{name: "coverage", what: "**Coverage** of the election and its sessions",
		command: "make cover", takes: "10 min",
		patterns: []string{`total:\s+\(statements\)\s+(?P<percent>[\d.]+)%`}, says: "{percent} % of statements"},
	{name: "bench", command: "make bench", takes: "55 min", pages: []string{"bench/RESULTS.md"},
		patterns: []string{`One run of .make bench. on (?P<day>.+?), which took`}},
}
