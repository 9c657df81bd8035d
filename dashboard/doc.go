// Package dashboard is an http.Handler with a page about the elections of a database: who
// leads, who is the deputy, who stands for election and how healthy they are, and who led when.
//
//	page, err := dashboard.New(pool, dashboard.WithRoster(candidates))
//	mux.Handle("/admin/elections/", page)
//
// # What is not promised
//
//   - The page has no login: whoever can reach it can read it. Mount it behind the login
//     of your other pages.
//   - The page is read-only: it answers GET and HEAD, and writes nothing.
//   - Without a roster the page shows what the server knows: who holds a lock, who is the
//     deputy, and who waits. It shows no other follower, no health and no history. The
//     server knows keys, not names, so name the elections ([WithElections]).
//
// # The page
//
// The page works at any path. It runs no script and loads nothing from elsewhere, as its
// Content-Security-Policy enforces. It shows everything that candidates publish as text,
// cut to 200 bytes, 20 pairs of metadata per candidate and 128 KiB of metadata in all. It
// refreshes itself with a meta element; a link pauses that, and so does the search: a refresh
// would empty its field.
//
// A table on top has a row for each election: its leader, since when, the deputy and the
// leader's health. A section for each election follows. A page has 50 elections; a search
// finds the others by their names, or by those of their candidates. A group of shards is one
// row and one section ([WithShards]), however many shards it has.
//
// # Cost
//
// However many viewers there are, the page asks the server at most once a second: five
// statements in sequence, three without a roster. It uses at most a tenth of a
// connection's time: if an answer takes long, it asks less often. Without viewers it does
// not ask.
//
// On a dead link a driver's call may not return. After 5 s the page abandons such a call,
// shows how old its data is, and asks on another connection 5 s later. With each further
// stuck call the pause doubles, up to 5 min. While half of the pool's connections are
// stuck, or 16, it does not ask.
package dashboard
