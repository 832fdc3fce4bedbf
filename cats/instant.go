package cats

import "time"

// Never is later than every real instant; a core that waits for nothing returns it as its deadline.
const Never Instant = 1<<63 - 1

// Add gives the instant d after t; it saturates at Never.
func (t Instant) Add(d time.Duration) Instant {
	if d > 0 && t > Never-Instant(d) {
		return Never
	}
	return t + Instant(d)
}

// Sub gives the time from o to t.
func (t Instant) Sub(o Instant) time.Duration { return time.Duration(t - o) }

// Wall gives t as wall-clock time (UTC).
func (t Instant) Wall() time.Time { return time.Unix(0, int64(t)).UTC() }
