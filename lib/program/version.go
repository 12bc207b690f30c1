package program

import "runtime/debug"

// version is set when the programs are built:
// -ldflags "-X github.com/nri-resctrl/nri-resctrl/lib/program.version=v1.2.3".
var version string

// Version is the version of this build: the one it was built with, else what
// the Go toolchain noted (module version or VCS revision), else "unknown".
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+dirty"
			}
		}
	}
	if revision == "" {
		return "unknown"
	}
	return revision[:min(12, len(revision))] + dirty
}
