// Package sim is a simulator of resctrl: one model of the kernel's filesystem,
// with two faces. memfs serves lib/resctrl in memory, fusemount serves
// unchanged programs through a FUSE mount.
package sim
