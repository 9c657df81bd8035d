package db

import "time"

// Time is a time that a statement tells in microseconds since 1970, the zero Time
// for 0, which stands for none.
func Time(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}
