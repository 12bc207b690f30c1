//go:build logs

package install

import (
	"context"
	"fmt"
)

// line is an event as state writes it.
func line(seq int64) string {
	return fmt.Sprintf(`{"log":%q,"seq":%d,"time":"2026-03-01T12:00:00.%09dZ","type":"AddOrUpdate","pod_uid":"7f5c2b1e-4f0e-4a53-a9a5-%012d",`+
		`"group_state":"Exists","group_path":"/sys/fs/resctrl/mon_groups/pod_7f5c2b1e-4f0e-4a53-a9a5-%012d","total_containers":2,"reconciled_containers":%d,`+
		`"pod_namespace":"shop","pod_name":"web-%d","node":"node-1","source":"resctrl-applier"}`, logID, seq, seq, seq, seq, seq%3, seq)
}

// source is the state's table, in memory.
type source struct {
	last, seq  int64
	dev, inode uint64
	offset     int64
}

func (s *source) Unexported(_ context.Context, after int64, limit int) ([]string, error) {
	var lines []string
	for seq := after + 1; seq <= s.last && len(lines) < limit; seq++ {
		lines = append(lines, line(seq))
	}
	return lines, nil
}

func (s *source) Line(_ context.Context, seq int64) (string, bool, error) {
	if seq < 1 || seq > s.last {
		return "", false, nil
	}
	return line(seq), true, nil
}

func (s *source) Renumber(context.Context, int64, int64) (int, error) {
	return 0, fmt.Errorf("nothing was lost, so nothing is to be renumbered")
}

func (s *source) Position(context.Context) (int64, uint64, uint64, int64, error) {
	return s.seq, s.dev, s.inode, s.offset, nil
}

func (s *source) SetPosition(_ context.Context, seq int64, dev, inode uint64, offset int64) error {
	s.seq, s.dev, s.inode, s.offset = seq, dev, inode, offset
	return nil
}
