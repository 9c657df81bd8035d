package results

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
)

// Load reads a file that Save has written.
func Load(file string) (*Results, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Results{}
	return r, json.Unmarshal(text, r)
}

// Save writes r as JSON, one line for each sample.
func (r *Results) Save(file string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	var b bytes.Buffer
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		b.WriteString(separator(i, "{"))
		b.WriteString("\"" + name + "\": ")
		var samples []json.RawMessage
		if json.Unmarshal(fields[name], &samples) != nil || samples == nil {
			b.Write(fields[name])
			continue
		}
		b.WriteString("[")
		for i, sample := range samples {
			b.WriteString(separator(i, ""))
			b.Write(sample)
		}
		b.WriteString("]")
	}
	b.WriteString("\n}\n")
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// separator comes before the i-th of some lines.
func separator(i int, first string) string {
	if i == 0 {
		return first + "\n"
	}
	return ",\n"
}

// Keep adds what an earlier run has measured and r has not, of the systems that are named, in their order.
func (r *Results) Keep(before *Results, systems []string) {
	r.Systems = described(systems, append(slices.Clone(r.Systems), before.Systems...))
	known := func(system string) bool {
		return slices.ContainsFunc(r.Systems, func(s System) bool { return s.Name == system })
	}
	var what []string
	keep := func(of string, n int) {
		if n > 0 {
			what = append(what, of)
		}
	}
	keep("failovers", add(&r.Failovers, before.Failovers, func(f Failover) [2]string { return [2]string{f.System, f.Fault} },
		func(f Failover) bool { return known(f.System) }))
	keep("costs at rest", add(&r.Rest, before.Rest, func(c Rest) string { return c.System }, func(c Rest) bool { return known(c.System) }))
	keep("growth", add(&r.Growth, before.Growth, func(g Growth) string { return g.System }, func(g Growth) bool { return known(g.System) }))
	keep("shards", add(&r.Shards, before.Shards, func(Shards) string { return "" }, func(Shards) bool { return true }))
	keep("calls", add(&r.InProcess, before.InProcess, func(InProcess) string { return "" }, func(InProcess) bool { return true }))
	keep("mistakes", add(&r.Mistakes, before.Mistakes, func(m Mistakes) [2]string { return [2]string{m.System, m.Strain} },
		func(m Mistakes) bool { return known(m.System) }))
	if what != nil {
		r.Kept = append(before.Kept, Kept{strings.Join(what, ", "), before.Command, before.Date})
	}
}

// described returns the first description of each system that is named and has one.
func described(systems []string, all []System) (d []System) {
	for _, name := range systems {
		if i := slices.IndexFunc(all, func(s System) bool { return s.Name == name }); i >= 0 {
			d = append(d, all[i])
		}
	}
	return d
}

// add adds those of an earlier run whose key no new one has, and returns how many these are.
func add[T any, K comparable](all *[]T, before []T, key func(T) K, known func(T) bool) (n int) {
	measured := map[K]bool{}
	for _, one := range *all {
		measured[key(one)] = true
	}
	for _, one := range before {
		if known(one) && !measured[key(one)] {
			*all = append(*all, one)
			n++
		}
	}
	return n
}
