// Package connect finds the database the way psql's users expect, and opens it
// with either driver.
//
// What is said explicitly comes first: the --dsn flag, then DATABASE_URL, each a
// URL or "key=value" pairs; whatever they leave open comes from libpq's PG*
// variables, its service file and its password file.
//
// A password must never be printed. Errors of a driver's parser may quote what
// they could not parse, so they are not passed on; other errors are scrubbed.
package connect
