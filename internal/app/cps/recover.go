package cps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/store"
	"github.com/margay-net/margay/internal/store/bolt"
)

// Recover ends the fence of a C-PS that does not run, by a person's will: the next start owns the shard, above every owner
// that a forwarder is known to have obeyed (CP section 13.2). It is audited, and gives a line that says what was done. A
// shard without a fence is left as it is.
func Recover(c Config, log io.Writer) (done string, err error) {
	if _, err := os.Stat(c.store()); err != nil {
		return "", fmt.Errorf("%w: start the C-PS once, so that it hears its forwarders", err)
	}
	kept, err := bolt.Open(c.store())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	logger, _ := observe.NewLogger(log)
	records, err := run.OpenAudit(c.Common, logger, prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, records.Close(context.Background())) }()
	epoch, fence, err := kept.Recover(shard)
	if errors.Is(err, store.ErrNotFenced) {
		return "", fmt.Errorf("%w. A C-PS whose store was lost is fenced once a forwarder has told it what it obeyed", err)
	}
	if err != nil {
		return "", err
	}
	done = fmt.Sprintf("shard %d is recovered: its next owner comes after epoch %s; forwarder %s had obeyed %s", shard, epoch, fence.Forwarder, fence.Highest)
	records.Record("shard-recovered", fmt.Sprintf("uid %d", os.Getuid()), string(c.Name), cats.ReasonNone, done)
	if err := records.Flush(); err != nil {
		return "", fmt.Errorf("%s; the audit log could not be written: %w", done, err)
	}
	return done, nil
}
