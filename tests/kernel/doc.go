// Package kernel holds the cases that say what the kernel's resctrl does, as far
// as our programs or the simulator rely on it. They are written once, against
// the system calls, and run on the simulator's two faces here and on the real
// kernel in a virtual machine (NRI_RESCTRL_KERNEL=1, see guests). Where a face
// cannot do what the kernel does, the list in differences_test.go says why.
package kernel
