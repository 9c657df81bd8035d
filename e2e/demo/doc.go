// Demo is what `make demo` runs: an election on a
// throw-away PostgreSQL server, three processes that stand in it, and a fault
// per scene. It ends with a proof, from what the processes recorded, that the
// promise of package elector was kept.
//
// # Who is who
//
//	demo ──stdin: commands──▶ candidate A (pgx)      ──▶ PostgreSQL (e2e/pgcluster)
//	  │  ◀─stdout: events────  candidate B (lib/pq)
//	  │                        candidate C (pgx)
//	  └──stdin: pids────────▶ guard
//
// A candidate is a process of its own, the same program with other
// arguments. It ends when its standard input closes, which also happens when
// the demo is killed. One that is frozen cannot notice; the guard, one more
// process on a pipe, kills what is left when the demo is gone.
//
// # Reading order
//
// demo.go, then stage.go and scene.go; candidate.go is the demo's side of a
// candidate and role.go the process itself, with write.go for its late writes;
// board.go is what is known of all of them, from their events; view.go, plain.go,
// live.go and panel.go show it; report.go is the end.
package main
