package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestBuild(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for want, info := range map[string]*debug.BuildInfo{
		"devel": nil,
		"a810d82c0b5e of 2026-11-29T22:38:00Z": {Settings: []debug.BuildSetting{
			setting("GOOS", "linux"), setting("vcs.revision", "a810d82c0b5e5a8c"), setting("vcs.time", "2026-11-29T22:38:00Z"), setting("vcs.modified", "false")}},
		"a810d8, changed since": {Settings: []debug.BuildSetting{setting("vcs.revision", "a810d8"), setting("vcs.modified", "true")}},
	} {
		if got := build(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := build(&debug.BuildInfo{}); got != "devel" {
		t.Errorf("a build without a commit: %q", got)
	}
	if got := Of("margay-cps"); !strings.HasPrefix(got, "margay-cps ") || !strings.Contains(got, "go1.") {
		t.Errorf("%q", got)
	}
}
