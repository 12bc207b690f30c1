package watcher

import (
	"context"
	"fmt"
	"log/slog"
)

// nriLog gives the stub of a plugin our logger. Its progress reports are for
// debugging; what matters of them is said by us.
type nriLog struct{ p *plugin }

func (l nriLog) say(ctx context.Context, level slog.Level, format string, args []any) {
	if l.p.abandoned.Load() {
		level = slog.LevelDebug // its end is our own doing
	}
	l.p.w.logger().Log(ctx, level, fmt.Sprintf(format, args...))
}

func (l nriLog) Debugf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelDebug, format, args)
}

func (l nriLog) Infof(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelDebug, format, args)
}

func (l nriLog) Warnf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelWarn, format, args)
}

func (l nriLog) Errorf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelError, format, args)
}
