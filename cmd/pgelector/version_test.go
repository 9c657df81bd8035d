package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionSaysWhatItWasBuiltFrom(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.25.0", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc123"}, {Key: "vcs.modified", Value: "true"}}}
	if got, want := describe(info), "pgelector v1.2.3 (go1.25.0, revision abc123, modified)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	info.Settings = nil
	if got, want := describe(info), "pgelector v1.2.3 (go1.25.0)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
