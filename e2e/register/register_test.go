package register

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func TestLinearizable(t *testing.T) {
	first := []Op{
		{Client: "a", Read: true, New: "", Call: 1, Return: 2},
		{Client: "a", Old: "", New: "a1", Call: 3, Return: 4},
	}
	for name, test := range map[string]struct {
		then []Op
		want porcupine.CheckResult
	}{
		"the next one reads and writes": {[]Op{
			{Client: "b", Read: true, New: "a1", Call: 5, Return: 6}, {Client: "b", Old: "a1", New: "b1", Call: 7, Return: 8}}, porcupine.Ok},
		"a late write that is refused": {[]Op{
			{Client: "b", Old: "a1", New: "b1", Call: 5, Return: 6}, {Client: "a", Old: "a1", New: "a2", Outcome: Refused, Call: 7, Return: 8}}, porcupine.Ok},
		"a late write": {[]Op{
			{Client: "b", Old: "a1", New: "b1", Call: 5, Return: 6}, {Client: "a", Old: "a1", New: "a2", Call: 7, Return: 8}}, porcupine.Illegal},
		"two writes at once": {[]Op{
			{Client: "b", Old: "a1", New: "b1", Call: 5, Return: 8}, {Client: "a", Old: "a1", New: "a2", Call: 5, Return: 8}}, porcupine.Illegal},
		"a write that is lost": {[]Op{
			{Client: "b", Read: true, New: "", Call: 5, Return: 6}}, porcupine.Illegal},
		"an unknown one that took effect": {[]Op{
			{Client: "a", Old: "a1", New: "a2", Outcome: Unknown, Call: 5, Return: 6}, {Client: "b", Read: true, New: "a2", Call: 7, Return: 8}}, porcupine.Ok},
		"an unknown one that did not": {[]Op{
			{Client: "a", Old: "a1", New: "a2", Outcome: Unknown, Call: 5, Return: 6}, {Client: "b", Read: true, New: "a1", Call: 7, Return: 8}}, porcupine.Ok},
		"an unknown one that took effect too late": {[]Op{
			{Client: "a", Old: "a1", New: "a2", Outcome: Unknown, Call: 5, Return: 6}, {Client: "b", Old: "a1", New: "b1", Call: 7, Return: 8},
			{Client: "b", Read: true, New: "a2", Call: 9, Return: 10}}, porcupine.Illegal},
	} {
		if got := Linearizable(append(first[:2:2], test.then...), time.Minute); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
