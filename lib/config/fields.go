package config

import (
	"fmt"
	"strings"
	"time"
)

// Bounds of the numbers and times.
const (
	// MinQueue and MaxQueue bound watcher.queue_size, in records. A record is
	// about a KiB, so the most is about a GiB: beyond it the queue is no longer
	// what protects the node. 0 would lose every record.
	MinQueue = 1
	MaxQueue = 1_000_000

	// MaxStartBarrier leaves the runtime's request timeout (2 s by default,
	// after which it disconnects the plugin) twice the room that we ask for.
	MaxStartBarrier = time.Second

	// MinHeartbeat keeps the record traffic of an idle node at one a second;
	// MaxHeartbeat is what a person waits to see that a watcher died.
	MinHeartbeat = time.Second
	MaxHeartbeat = time.Hour

	// MinReconnectBackoff: a plugin that registers in a tight loop while a pod
	// is being stopped freezes the runtime (containerd issue 14083).
	MinReconnectBackoff = time.Second
	MaxReconnectBackoff = time.Hour

	// MinEventRetention is above the pass of the retry job that prunes, so
	// that a reader of the table sees every event at least once.
	MinEventRetention = time.Minute
	// MaxEventRetention is ten years: what is longer is a slip of the pen.
	MaxEventRetention = 10 * 365 * 24 * time.Hour

	// MinVanishedAfter: a cgroup that was missing for less may be one that is
	// just being made.
	MinVanishedAfter = time.Second
	MaxVanishedAfter = 30 * 24 * time.Hour
)

// field is one key of the file and where its value goes.
type field struct {
	table, key string
	// set checks the value as TOML gave it and stores it; it returns what is
	// allowed where the value is not, else "".
	set func(value any) (allowed string)
	// file is set for the path of a file that nothing else of ours may share.
	file *string
}

func (f field) name() string { return f.table + "." + f.key }

// fields is every key there is. No key is read that is not listed here.
func (c *Config) fields() []field {
	return []field{
		{"watcher", "nri_socket", text(&c.Watcher.NRISocket, isSocket), &c.Watcher.NRISocket},
		{"watcher", "plugin_name", text(&c.Watcher.PluginName, isPluginName), nil},
		{"watcher", "plugin_index", text(&c.Watcher.PluginIndex, isPluginIndex), nil},
		{"watcher", "queue_size", number(&c.Watcher.QueueSize, MinQueue, MaxQueue, "records"), nil},
		{"watcher", "reconnect_backoff_max", period(&c.Watcher.ReconnectBackoffMax, MinReconnectBackoff, MaxReconnectBackoff), nil},
		{"watcher", "heartbeat", period(&c.Watcher.Heartbeat, MinHeartbeat, MaxHeartbeat), nil},
		{"watcher", "start_barrier", period(&c.Watcher.StartBarrier, 0, MaxStartBarrier), nil},
		{"watcher", "namespaces", list(&c.Watcher.Namespaces, isNamespace), nil},
		{"watcher", "label_selector", table(&c.Watcher.LabelSelector, isLabel), nil},
		{"pipe", "path", text(&c.Pipe.Path, isPath), &c.Pipe.Path},
		{"pipe", "ack_path", text(&c.Pipe.AckPath, isPath), &c.Pipe.AckPath},
		{"resctrl", "root", text(&c.Resctrl.Root, isPath), nil},
		{"resctrl", "group_prefix", text(&c.Resctrl.GroupPrefix, isGroupPrefix), nil},
		{"resctrl", "auto_mount", toggle(&c.Resctrl.AutoMount), nil},
		{"resctrl", "cleanup_on_start", toggle(&c.Resctrl.CleanupOnStart), nil},
		{"resctrl", "simulated", toggle(&c.Resctrl.Simulated), nil},
		{"cgroup", "root", text(&c.Cgroup.Root, isPath), nil},
		{"proc", "root", text(&c.Proc.Root, isPath), nil},
		{"state", "path", text(&c.State.Path, isPath), &c.State.Path},
		{"state", "event_retention", period(&c.State.EventRetention, MinEventRetention, MaxEventRetention), nil},
		{"state", "group", text(&c.State.Group, isGroup), nil},
		{"events", "path", text(&c.Events.Path, isPath), &c.Events.Path},
		{"events", "fsync", toggle(&c.Events.Fsync), nil},
		{"events", "node", text(&c.Events.Node, isNode), nil},
		{"retry", "sweep_running", toggle(&c.Retry.SweepRunning), nil},
		{"retry", "vanished_after", period(&c.Retry.VanishedAfter, MinVanishedAfter, MaxVanishedAfter), nil},
		{"log", "level", text(&c.Log.Level, isLevel), nil},
		{"log", "format", text(&c.Log.Format, isFormat), nil},
	}
}

// check says what is allowed where a text is not, else "".
type check func(string) (allowed string)

func text(to *string, ok check) func(any) string {
	return func(value any) string {
		s, isString := value.(string)
		if allowed := ok(s); allowed != "" || !isString {
			return stringOf(allowed)
		}
		*to = s
		return ""
	}
}

// stringOf says what kind of string is allowed, for a value that is none.
func stringOf(allowed string) string {
	if allowed == "" {
		return "a string"
	}
	return allowed
}

func toggle(to *bool) func(any) string {
	return func(value any) string {
		b, ok := value.(bool)
		if !ok {
			return "true or false, without quotes"
		}
		*to = b
		return ""
	}
}

func number(to *int, low, high int, unit string) func(any) string {
	return func(value any) string {
		n, ok := value.(int64)
		if !ok || n < int64(low) || n > int64(high) {
			return fmt.Sprintf("a whole number from %d to %d (%s)", low, high, unit)
		}
		*to = int(n)
		return ""
	}
}

func period(to *Duration, low, high time.Duration) func(any) string {
	return func(value any) string {
		s, ok := value.(string)
		d, err := time.ParseDuration(s)
		if !ok || err != nil || d < low || d > high {
			return fmt.Sprintf(`a time from %q to %q, written like "100ms", "30s", "2m" or "168h"`, short(low), short(high))
		}
		to.Duration = d
		return ""
	}
}

// short is "2m" where Duration's String is "2m0s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func list(to *[]string, ok check) func(any) string {
	return func(value any) string {
		const allowed = "a list of strings"
		values, isList := value.([]any)
		if !isList {
			return allowed
		}
		texts := make([]string, 0, len(values))
		for _, v := range values {
			s, isString := v.(string)
			if !isString {
				return allowed
			}
			if bad := ok(s); bad != "" {
				return "a list of strings, each of them " + bad
			}
			texts = append(texts, s)
		}
		*to = texts
		return ""
	}
}

func table(to *map[string]string, ok func(key, value string) string) func(any) string {
	return func(value any) string {
		const allowed = `a table of strings, like { app = "web" }`
		values, isTable := value.(map[string]any)
		if !isTable {
			return allowed
		}
		texts := make(map[string]string, len(values))
		for k, v := range values {
			s, isString := v.(string)
			if !isString {
				return allowed
			}
			if bad := ok(k, s); bad != "" {
				return bad
			}
			texts[k] = s
		}
		*to = texts
		return ""
	}
}
