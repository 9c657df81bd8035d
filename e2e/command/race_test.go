//go:build race

package command_test

func init() { raceFlag = []string{"-race"} }
