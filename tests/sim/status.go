package sim

import "fmt"

// statusSize is the kernel's buffer for info/last_cmd_status.
const statusSize = 512

// status is info/last_cmd_status. What does not fit is dropped, as the
// kernel's seq_buf does; who clears it is the caller's business: writes to
// tasks, schemata and mode, and rename, but not mkdir, rmdir and cpus.
type status struct {
	text string
	full bool
}

func (s *status) clear() { *s = status{} }

func (s *status) addf(format string, args ...any) {
	s.add(fmt.Sprintf(format, args...) + "\n")
}

func (s *status) add(line string) {
	if s.full || len(s.text)+len(line) >= statusSize {
		s.full = true
		return
	}
	s.text += line
}

func (s *status) read() string {
	if s.text == "" {
		return "ok\n"
	}
	return s.text
}
