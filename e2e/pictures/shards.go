package main

import "fmt"

// The shards of four members, at each step. A capital letter is one that has just moved.
var moving = []struct {
	what   string
	shards [4]string // "" if the member is away
}{
	{"three members", [4]string{"abcd", "efgh", "ijkl", ""}},
	{"a fourth joins", [4]string{"abc", "efg", "ijk", "DHL"}},
	{"the second is killed", [4]string{"abcE", "", "ijkF", "dhlG"}},
	{"and is back", [4]string{"abc", "EFG", "ijk", "dhl"}},
}

// shards draws which shards move as members join and leave.
func shards(c *canvas) {
	c.title = "Twelve shards of three members: a fourth that joins takes one of each; those of one that is killed go to the others; as it comes back, it takes one of each again. No two members exchange shards."
	c.width, c.height = 900, 330
	const (
		left  = 110.0
		step  = 198.0
		side  = 32.0
		lane  = 58.0
		first = 62.0
	)
	for m := range 4 {
		c.label(left-14, first+lane*float64(m)+22, 14, c.text, "end", "600", fmt.Sprint("member ", m+1))
	}
	for s, at := range moving {
		x := left + step*float64(s)
		c.label(x, 38, 14, c.text, "start", "600", at.what)
		for m, names := range at.shards {
			y := first + lane*float64(m)
			if names == "" {
				c.note(x, y+22, "start", "away")
			}
			for i, name := range names {
				fill, ink := c.quiet, c.on
				if name < 'a' {
					fill, ink, name = c.good, c.onGood, name+'a'-'A'
				}
				c.bar(x+(side+6)*float64(i), y, side, side, fill, ink, string(name))
			}
		}
	}
	c.bar(left, 300, 16, 16, c.good, c.onGood)
	c.note(left+24, 313, "start", "has just moved: its work returned first, unless its member was killed. All others stay where they are.")
}
