// Package capabilities finds the least capabilities that our programs need on the
// kernel's own resctrl. It runs inside a guest (make test-kernel).
package capabilities
