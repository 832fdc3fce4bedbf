package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
)

const (
	queueLength = 1024 // records that wait for the disk before callers do
	mostBatch   = 256  // records of one fsync
	retryAfter  = time.Second
)

// ErrClosed is for what comes after Close.
var ErrClosed = errors.New("the audit log is closed")

// Log is an open audit log. One goroutine, which Close waits for, owns the file; Record and Flush are safe for
// concurrent use.
type Log struct {
	log     *slog.Logger
	queue   chan entry
	abandon chan struct{} // closed when Close's context ends: give up on a failing disk
	done    chan struct{} // closed when the owner has returned

	mutex  sync.RWMutex // guards closed; held by senders, so that Close does not close the queue under them
	closed bool

	bounds  *bounds // of RecordFrom
	writer  *writer // the owner's, and after done Close's
	lost    int     // the owner's, and after done Close's
	written prometheus.Counter
	failed  prometheus.Counter
	left    prometheus.Counter
}

// entry is a record, or a request to say when everything before it is on disk.
type entry struct {
	record Record
	synced chan<- error
}

// Options are where a log is, and how much of it is kept.
type Options struct {
	File    string
	MaxSize int64 // octets, at which the file is rotated away; what is written at once is not split
	Keep    int   // files that were rotated away and are kept, at least 1
}

// Open opens or creates a log and checks the chain of its last records. A line that a crash cut short is reported to log
// and marked in the file. Where the chain does not hold, or another process has the log open, Open fails. Its metrics,
// margay_audit_*, are registered in registry.
func Open(options Options, log *slog.Logger, registry prometheus.Registerer) (*Log, error) {
	writer, torn, err := openWriter(options, log)
	if err != nil {
		return nil, fmt.Errorf("audit log %s: %w", options.File, err)
	}
	l := &Log{
		log: log, writer: writer, bounds: newBounds(),
		queue: make(chan entry, queueLength), abandon: make(chan struct{}), done: make(chan struct{}),
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "margay_audit_records_total", Help: "Audit records on disk since start."}),
		failed:  prometheus.NewCounter(prometheus.CounterOpts{Name: "margay_audit_write_failures_total", Help: "Failed attempts to write audit records; each is tried again."}),
	}
	l.left = prometheus.NewCounter(prometheus.CounterOpts{Name: "margay_audit_left_out_records_total", Help: "Audit records of what peers caused too often, told in summaries."})
	depth := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "margay_audit_queue_depth", Help: "Audit records that wait for the disk."},
		func() float64 { return float64(len(l.queue)) })
	registry.MustRegister(l.written, l.failed, l.left, depth)
	go l.own()
	if torn > 0 {
		log.Warn("the audit log's last line was cut short by a crash; marked it and went on", "file", options.File, "lines", torn)
		l.Record(TornEvent, "audit", options.File, cats.ReasonNone, fmt.Sprintf("a crash cut short the last %d lines before this one", torn))
	}
	return l, nil
}

// Record queues a record; it waits while the queue is full. The record is on disk once a later Flush or Close returns
// nil. After Close it is written to the daemon's log instead.
func (l *Log) Record(event, subject, object string, reason cats.Reason, detail string) {
	record := Record{Time: time.Now().UTC(), Event: event, Subject: subject, Object: object, Reason: reason.String(), Detail: detail}
	if err := l.send(entry{record: record}); err != nil {
		l.log.Error("audit record after the audit log was closed", "record", record)
	}
}

// RecordFrom is Record for what a peer can cause as often as it likes; source tells peers apart by what they cannot
// choose. Of one event and source, and of all together, only so many are recorded at a time; it tells whether this one
// is. Those that are not are counted, and a later record says how many they were.
func (l *Log) RecordFrom(source, event, subject, object string, reason cats.Reason, detail string) bool {
	if !l.bounds.allow(time.Now(), cause{event, source}, reason) {
		l.left.Inc()
		return false
	}
	l.Record(event, subject, object, reason, detail)
	return true
}

// Flush waits until every record queued before it is on disk.
func (l *Log) Flush() error {
	synced := make(chan error, 1)
	if err := l.send(entry{synced: synced}); err != nil {
		return err
	}
	return <-synced
}

// Close writes what is queued and closes the file. While the disk fails it keeps trying until ctx ends; then the error
// tells how many records were lost.
func (l *Log) Close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { close(l.abandon) })
	defer stop()
	l.mutex.Lock()
	if l.closed {
		l.mutex.Unlock()
		return ErrClosed
	}
	l.closed = true
	close(l.queue)
	l.mutex.Unlock()
	<-l.done
	err := l.writer.close()
	if l.lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d audit records were lost: the disk kept failing", l.lost))
	}
	return err
}

func (l *Log) send(e entry) error {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	if l.closed {
		return ErrClosed
	}
	l.queue <- e
	return nil
}

// own writes batches until the queue is closed and empty, and summaries at times and at last.
func (l *Log) own() {
	defer close(l.done)
	summaries := time.NewTicker(summarizeEvery)
	defer summaries.Stop()
	batch := make([]entry, 0, mostBatch)
	for open := true; open; {
		batch = batch[:0]
		select {
		case now := <-summaries.C:
			batch = l.summarize(batch, now)
		case e, more := <-l.queue:
			if open = more; open {
				batch = l.gather(append(batch, e))
			} else {
				batch = l.summarize(batch, time.Now())
			}
		}
		l.commit(batch)
	}
}

// gather takes what waits already, as much as fits a batch.
func (l *Log) gather(batch []entry) []entry {
	for len(batch) < mostBatch {
		select {
		case e, open := <-l.queue:
			if !open {
				return batch
			}
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

func (l *Log) summarize(batch []entry, now time.Time) []entry {
	for _, r := range l.bounds.summarize(now) {
		batch = append(batch, entry{record: r})
	}
	return batch
}

// commit writes one batch, as often as it takes.
func (l *Log) commit(batch []entry) {
	var records []Record
	for _, e := range batch {
		if e.synced == nil {
			records = append(records, e.record)
		}
	}
	err := l.persist(records)
	if err != nil {
		l.lost += len(records)
	} else {
		l.written.Add(float64(len(records)))
	}
	for _, e := range batch {
		if e.synced != nil {
			e.synced <- err
		}
	}
}

func (l *Log) persist(records []Record) error {
	for attempt := 0; len(records) > 0; attempt++ {
		err := l.writer.append(records)
		if err == nil {
			if attempt > 0 {
				l.log.Info("the audit log is written again", "failed attempts", attempt)
			}
			return nil
		}
		l.failed.Inc()
		if attempt == 0 {
			l.log.Error("the audit log cannot be written; trying again until it can, and what must be audited waits", "error", err)
		}
		select {
		case <-l.abandon:
			return err
		case <-time.After(retryAfter):
		}
	}
	return nil
}
