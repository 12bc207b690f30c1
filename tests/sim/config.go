package sim

import "time"

// Config describes the CPU and the kernel that are simulated.
type Config struct {
	NumRMIDs   int // RMIDs of the CPU; the root group holds one of them
	NumCLOSIDs int // CLOSIDs of the CPU; the root group holds one of them
	CBMLen     int // bits of an L3 capacity mask, 1 to 32
	CPUs       int // online CPUs, 1 to 64
	L3Domains  int // mon_L3_00, mon_L3_01, …

	Monitoring bool // false: no mon_data, no mon_groups
	Allocation bool // false: no control groups but the root

	// Limbo is how long a removed RMID is not given out again (mkdir says
	// EBUSY when no other is free); 0: it is free at once.
	Limbo time.Duration
	// Kernel61 plays Linux 6.1: no lists in tasks, no rename, other texts in
	// last_cmd_status. The time in limbo is Limbo's business alone.
	Kernel61 bool

	BytesPerSecond  uint64        // what mbm_total_bytes of a group with tasks gains; mbm_local_bytes gains 3/4 of it
	OccupancyBytes  uint64        // llc_occupancy of a group with tasks
	OccupancyDecay  time.Duration // time until it is 0 after the last task left
	ErrorRMID       int           // the RMID whose counters read "Error"; 0: none
	UnavailableRMID int           // the RMID whose counters read "Unavailable"; 0: none
	Unmounted       bool          // begin without resctrl mounted
}

// DefaultConfig is a server CPU with monitoring and allocation on Linux 6.12,
// where every removed RMID is in limbo for about a second.
func DefaultConfig() Config {
	return Config{
		NumRMIDs: 32, NumCLOSIDs: 8, CBMLen: 12, CPUs: 2, L3Domains: 1,
		Monitoring: true, Allocation: true, Limbo: time.Second,
		BytesPerSecond: 1 << 30, OccupancyBytes: 4 << 20,
	}
}

// Kernel61Config is the same CPU on Linux 6.1, where an RMID that occupies
// little cache can be used again at once.
func Kernel61Config() Config {
	c := DefaultConfig()
	c.Kernel61, c.Limbo = true, 0
	return c
}
