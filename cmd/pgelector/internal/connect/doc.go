// Package connect finds the database as psql does, and opens it with either driver.
//
// The --dsn flag comes first, then DATABASE_URL: each a URL or "key=value" pairs. The rest
// comes from libpq's PG* variables, its service file and its password file.
//
// The package never prints a password. It does not pass on the errors of a driver's parser,
// which may quote their input, and it scrubs all other errors.
package connect
