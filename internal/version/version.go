// Package version tells which build of Margay a program is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Of gives the line that `PROGRAM --version` prints: the commit that it was built from, or "devel" where the build did
// not record one, and the Go release.
func Of(program string) string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("%s %s, %s %s/%s", program, build(info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func build(info *debug.BuildInfo) string {
	if info == nil {
		return "devel"
	}
	vcs := map[string]string{}
	for _, s := range info.Settings {
		vcs[s.Key] = s.Value
	}
	revision := vcs["vcs.revision"]
	if revision == "" {
		return "devel"
	}
	text := revision[:min(12, len(revision))]
	if at := vcs["vcs.time"]; at != "" {
		text += " of " + at
	}
	if vcs["vcs.modified"] == "true" {
		text += ", changed since"
	}
	return text
}
