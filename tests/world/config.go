package world

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// settings are those of this node, before Options.Config.
func (w *World) settings() map[string]string {
	q := strconv.Quote
	return map[string]string{
		"watcher.nri_socket":            q(w.NRISocket()),
		"watcher.reconnect_backoff_max": q("1s"),
		"watcher.heartbeat":             q("1s"),
		"watcher.start_barrier":         q("1s"),
		"pipe.path":                     q(w.Pipe()),
		"pipe.ack_path":                 q(w.AckPipe()),
		"resctrl.root":                  q(w.Mount.Resctrl()),
		"resctrl.simulated":             "true",
		"resctrl.auto_mount":            "false",
		"cgroup.root":                   q(w.Mount.Cgroup()),
		"proc.root":                     q(w.Mount.Proc()),
		"state.path":                    q(w.Database()),
		"events.path":                   q(w.EventLog()),
		"events.fsync":                  "true",
		"events.node":                   q("sim-node"),
		"retry.vanished_after":          q("1s"),
	}
}

// WriteConfig writes the configuration: the node's settings, those of Options
// and more, the later ones first in force.
func (w *World) WriteConfig(more map[string]string) error {
	all := w.settings()
	maps.Copy(all, w.opts.Config)
	maps.Copy(all, more)
	var b strings.Builder
	section := ""
	for _, key := range slices.Sorted(maps.Keys(all)) {
		table, name, ok := strings.Cut(key, ".")
		if !ok {
			return fmt.Errorf("setting %q: want table.key", key)
		}
		if table != section {
			fmt.Fprintf(&b, "[%s]\n", table)
			section = table
		}
		fmt.Fprintf(&b, "%s = %s\n", name, all[key])
	}
	return os.WriteFile(w.ConfigFile(), []byte(b.String()), 0o644)
}
