// Package systems has one adapter for each way to elect a leader that is measured. An adapter runs inside a
// candidate process and does what a user of that system would write, and nothing more; what it observes it
// tells a Reporter.
package systems
