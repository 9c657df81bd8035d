package history

// Timeline is who led when, and what was done meanwhile: what a picture is drawn
// from. Times are milliseconds from its beginning.
type Timeline struct {
	Length int
	Rows   []string // who may lead, in the order in which they are drawn: each begins with its name
	Terms  []Stretch
	Faults []Stretch
}

// Stretch is a term of a row, or a fault of a name.
type Stretch struct {
	Name     string
	From, To int
}
