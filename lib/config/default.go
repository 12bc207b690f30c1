package config

import "time"

// Default is the configuration of a node where nobody wrote a file. Each call
// makes a new one.
func Default() *Config {
	return &Config{
		Watcher: Watcher{
			NRISocket:           "/var/run/nri/nri.sock",
			PluginName:          "resctrl",
			PluginIndex:         "10",
			QueueSize:           8192,
			ReconnectBackoffMax: Duration{30 * time.Second},
			Heartbeat:           Duration{10 * time.Second},
			StartBarrier:        Duration{100 * time.Millisecond},
			Namespaces:          []string{},
			LabelSelector:       map[string]string{},
		},
		Pipe: Pipe{
			Path:    "/run/nri-resctrl/lifecycle.pipe",
			AckPath: "/run/nri-resctrl/ack.pipe",
		},
		Resctrl: Resctrl{
			Root:           "/sys/fs/resctrl",
			GroupPrefix:    "pod_",
			AutoMount:      true,
			CleanupOnStart: true,
		},
		Cgroup: Cgroup{Root: "/sys/fs/cgroup"},
		Proc:   Proc{Root: "/proc"},
		State: State{
			Path:           "/var/lib/nri-resctrl/state.db",
			EventRetention: Duration{168 * time.Hour},
		},
		Events: Events{
			Path:  "/var/log/nri-resctrl/events.jsonl",
			Fsync: true,
		},
		Retry: Retry{
			SweepRunning:  true,
			VanishedAfter: Duration{2 * time.Minute},
		},
		Log: Log{Level: "info", Format: "text"},
	}
}
