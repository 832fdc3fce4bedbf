package datapath

import "golang.org/x/sys/unix"

// Monotonic reads CLOCK_MONOTONIC in nanoseconds, the clock of Usage.LastSeen and Miss.Received, which the program reads
// at the last tick, so up to 10 ms earlier.
func Monotonic() int64 { return readClock(unix.CLOCK_MONOTONIC) }

// monotonicTick reads the same clock as the program does.
func monotonicTick() int64 { return readClock(unix.CLOCK_MONOTONIC_COARSE) }

func readClock(id int32) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(err) // these clocks are always there
	}
	return t.Nano()
}
