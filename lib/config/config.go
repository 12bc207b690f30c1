// Package config is the one configuration file of all programs.
package config

import "time"

// Config is /etc/nri-resctrl/config.toml.
type Config struct {
	Watcher Watcher `toml:"watcher"`
	Pipe    Pipe    `toml:"pipe"`
	Resctrl Resctrl `toml:"resctrl"`
	Cgroup  Cgroup  `toml:"cgroup"`
	Proc    Proc    `toml:"proc"`
	State   State   `toml:"state"`
	Events  Events  `toml:"events"`
	Retry   Retry   `toml:"retry"`
	Log     Log     `toml:"log"`
}

// Watcher is how nri-watcher talks to the runtime, and which pods it forwards.
type Watcher struct {
	NRISocket           string            `toml:"nri_socket"`
	PluginName          string            `toml:"plugin_name"`
	PluginIndex         string            `toml:"plugin_index"`
	QueueSize           int               `toml:"queue_size"` // records
	ReconnectBackoffMax Duration          `toml:"reconnect_backoff_max"`
	Heartbeat           Duration          `toml:"heartbeat"`
	StartBarrier        Duration          `toml:"start_barrier"` // 0 is off
	Namespaces          []string          `toml:"namespaces"`    // empty is all
	LabelSelector       map[string]string `toml:"label_selector"`
}

// Pipe is where the two FIFOs are; the locks lie in the directory of Path.
type Pipe struct {
	Path    string `toml:"path"`
	AckPath string `toml:"ack_path"`
}

// Resctrl is the filesystem and what is ours on it.
type Resctrl struct {
	Root           string `toml:"root"`
	GroupPrefix    string `toml:"group_prefix"`
	AutoMount      bool   `toml:"auto_mount"`
	CleanupOnStart bool   `toml:"cleanup_on_start"`
	Simulated      bool   `toml:"simulated"` // the root need not be a resctrl mount
}

// Cgroup is where the cgroup filesystem is mounted.
type Cgroup struct {
	Root string `toml:"root"`
}

// Proc is where procfs is mounted.
type Proc struct {
	Root string `toml:"root"`
}

// State is the SQLite database.
type State struct {
	Path           string   `toml:"path"`
	EventRetention Duration `toml:"event_retention"`
	Group          string   `toml:"group"` // who may read state and event log; "" is root only
}

// Events is the event log.
type Events struct {
	Path  string `toml:"path"`
	Fsync bool   `toml:"fsync"`
	Node  string `toml:"node"` // "" is the host's name
}

// Retry is what resctrl-retry does beside the retries.
type Retry struct {
	SweepRunning  bool     `toml:"sweep_running"`
	VanishedAfter Duration `toml:"vanished_after"`
}

// Log is how the programs log.
type Log struct {
	Level  string `toml:"level"`  // debug, info, warn, error
	Format string `toml:"format"` // text, json
}

// Duration is a time.Duration written as "100ms", "2m", "168h".
type Duration struct{ time.Duration }

// UnmarshalText reads "100ms".
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(short(d.Duration)), nil }
