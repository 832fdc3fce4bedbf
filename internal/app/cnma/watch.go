package cnma

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a directory has to be quiet before the file in it is read: whoever writes it is done by then.
const settle = 200 * time.Millisecond

// watch notices when the content of a file changes. It watches the directory, since editors and deployments replace files
// rather than write into them.
type watch struct {
	path     string
	notifier *fsnotify.Watcher
	seen     [sha256.Size]byte // of the content looked at last
	log      *slog.Logger
}

func newWatch(path string, log *slog.Logger) (*watch, error) {
	notifier, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	if err := notifier.Add(filepath.Dir(path)); err != nil {
		notifier.Close()
		return nil, fmt.Errorf("watch %s: %w", filepath.Dir(path), err)
	}
	return &watch{path: path, notifier: notifier, log: log}, nil
}

// changed tells whether the content is other than when it was asked last. A file that cannot be read has the content "".
func (w *watch) changed() bool {
	content, err := os.ReadFile(w.path)
	if err != nil {
		w.log.Warn("the topology file cannot be read; the last good one stays in force", "error", err)
		content = nil
	}
	sum := sha256.Sum256(content)
	if sum == w.seen {
		return false
	}
	w.seen = sum
	return err == nil
}

// run calls changed after each change, and once at the start, for a change that came before the watch. It ends with ctx.
func (w *watch) run(ctx context.Context, changed func()) {
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.notifier.Events:
			quiet.Reset(settle)
		case err := <-w.notifier.Errors:
			// Events were lost; what the file says now is what counts.
			w.log.Warn("watching the topology file", "error", err)
			quiet.Reset(settle)
		case <-quiet.C:
			if w.changed() {
				changed()
			}
		}
	}
}

func (w *watch) close() error { return w.notifier.Close() }
