package program

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
)

// NewLogger makes the logger that the configuration asks for, writing to w.
// level overrides the configured one unless it is empty.
//
// Where w is /dev/null and the journal is there, it writes to the journal: a
// plugin that the runtime launches has no standard streams (seen with
// containerd 2.4).
func NewLogger(w io.Writer, name string, c config.Log, level string) (*slog.Logger, error) {
	if level == "" {
		level = c.Level
	}
	min, err := parseLevel(level)
	if err != nil {
		return nil, Fail(ExitConfig, err)
	}
	opts := &slog.HandlerOptions{Level: min}
	switch {
	case logsElsewhere(w):
		return slog.New(newJournalHandler(opts, name)), nil
	case c.Format == "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		opts.ReplaceAttr = escapeDelete
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
}

// escapeDelete escapes the one control character that slog's text handler lets
// pass as it is (Go 1.26).
func escapeDelete(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindString && strings.Contains(a.Value.String(), "\x7f") {
		a.Value = slog.StringValue(strings.ReplaceAll(a.Value.String(), "\x7f", `\x7f`))
	}
	return a
}

// parseLevel reads a level's name; "" is info.
func parseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "info", "":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("unknown log level %q: one of debug, info, warn, error", s)
}

// logsElsewhere says whether what is written to w is lost and the journal is
// there to write to instead.
func logsElsewhere(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isNull(f) && journal.Enabled()
}

// isNull says whether f is /dev/null, the character device 1:3
// (Documentation/admin-guide/devices.txt).
func isNull(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}
