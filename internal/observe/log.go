// Package observe is what a daemon shows of itself: its log, its metrics and its health.
package observe

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger makes a logger of text lines for w, usually os.Stderr, whose least level can be changed while it runs.
func NewLogger(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), level
}

// ParseLevel reads debug, info, warn or error; the empty text is info.
func ParseLevel(s string) (slog.Level, error) {
	if s == "" {
		return slog.LevelInfo, nil
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("log level %q: need debug, info, warn or error", s)
	}
	return level, nil
}
