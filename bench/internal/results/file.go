package results

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
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
// A run that has only counted mistakes becomes a part of the earlier run, whose command, commit and date r
// then has.
func (r *Results) Keep(before *Results, systems []string) {
	counted := r.onlyCounted()
	r.Systems = described(systems, append(slices.Clone(r.Systems), before.Systems...))
	known := func(system string) bool {
		return slices.ContainsFunc(r.Systems, func(s System) bool { return s.Name == system })
	}
	kept := slices.Concat(
		add(&r.Failovers, before.Failovers, known, func(f Failover) Row { return Row{"failovers", f.System, f.Fault} }),
		add(&r.Rest, before.Rest, known, func(c Rest) Row { return Row{"costs at rest", c.System, ""} }),
		add(&r.Growth, before.Growth, known, func(g Growth) Row { return Row{"growth", g.System, ""} }),
		add(&r.Shards, before.Shards, known, func(Shards) Row { return Row{"shards", "", ""} }),
		add(&r.InProcess, before.InProcess, known, func(InProcess) Row { return Row{"calls", "", ""} }),
		add(&r.Mistakes, before.Mistakes, known, Mistakes.Row))
	for _, k := range append(before.Kept, Kept{before.Command, before.Commit, before.Date, kept}) {
		still := func(row Row) bool { return slices.Contains(kept, row) }
		if k.Rows = chosen(k.Rows, still); len(k.Rows) > 0 {
			r.Kept = append(r.Kept, k)
		}
		kept = chosen(kept, func(row Row) bool { return !slices.Contains(k.Rows, row) })
	}
	if last := len(r.Kept) - 1; counted != nil && last >= 0 && r.Kept[last].Date.Equal(before.Date) {
		r.Kept[last] = Kept{r.Command, r.Commit, r.Date, counted}
		r.Command, r.Commit, r.Date, r.Took, r.Quick, r.Facts = before.Command, before.Commit, before.Date, before.Took, before.Quick, before.Facts
	}
}

// onlyCounted returns the rows of a run that has measured nothing but mistakes; nil for another.
func (r *Results) onlyCounted() (rows []Row) {
	if len(r.Failovers)+len(r.Rest)+len(r.Growth)+len(r.Shards)+len(r.InProcess) > 0 {
		return nil
	}
	for _, m := range r.Mistakes {
		rows = append(rows, m.Row())
	}
	return rows
}

// chosen returns the rows that are wanted.
func chosen(rows []Row, wanted func(Row) bool) (c []Row) {
	for _, row := range rows {
		if wanted(row) {
			c = append(c, row)
		}
	}
	return c
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

// add adds those of an earlier run whose row no new one has, and returns their rows.
func add[T any](all *[]T, before []T, known func(system string) bool, of func(T) Row) (kept []Row) {
	measured := map[Row]bool{}
	for _, one := range *all {
		measured[of(one)] = true
	}
	for _, one := range before {
		row := of(one)
		if measured[row] || row.System != "" && !known(row.System) {
			continue
		}
		*all = append(*all, one)
		if !slices.Contains(kept, row) {
			kept = append(kept, row)
		}
	}
	return kept
}
