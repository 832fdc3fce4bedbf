// Package impair makes a link of the lab slow, lossy or narrow, in user space, as not every kernel has netem.
//
// A link that can be impaired is two veth pairs with a middle in between, a network namespace where both inner ends are.
// As long as the link is not impaired, XDP programs there hand every frame on (Join), and no process is needed. An
// impaired direction is taken from its program: a process reads the frames from a packet socket, holds each as long as
// the impairment says, and writes it out on the other side. The outer ends keep their names, indexes, addresses and
// programs all the while, and see nothing but the frames.
package impair

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Impairment is what one direction of a link does to its frames. The zero Impairment does nothing. A link keeps the
// order of its frames, whatever the jitter, as wires do.
type Impairment struct {
	Delay  time.Duration `json:"delay,omitempty"`  // of each frame, ns; 0 to MaxDelay
	Jitter time.Duration `json:"jitter,omitempty"` // the delay is uniform within that much of Delay, ns; 0 to Delay
	Loss   float64       `json:"loss,omitempty"`   // probability that a frame is lost, each by itself; 0 to 1
	Rate   uint64        `json:"rate,omitempty"`   // bit/s of whole frames without preamble and check sequence; 0: unlimited
	Queue  int           `json:"queue,omitempty"`  // frames that wait for the rate at most, those beyond are dropped; 1 to MaxQueue
	Seed   uint64        `json:"seed"`             // of loss and jitter: the same frames meet the same fate again
}

// Bounds of an Impairment.
const (
	MaxDelay     = time.Minute
	MaxQueue     = 1 << 16
	DefaultQueue = 1000
	leastRate    = 1000 // bit/s
)

// Check gives what is wrong with an impairment.
func (i *Impairment) Check() error {
	switch {
	case i.Delay < 0 || i.Delay > MaxDelay:
		return fmt.Errorf("delay %s: need 0 to %s", i.Delay, MaxDelay)
	case i.Jitter < 0 || i.Jitter > i.Delay:
		return fmt.Errorf("jitter %s: need 0 to the delay, %s, as no frame arrives before it was sent", i.Jitter, i.Delay)
	case !(i.Loss >= 0 && i.Loss <= 1):
		return fmt.Errorf("loss %s: need 0%% to 100%%", FormatLoss(i.Loss))
	case i.Rate != 0 && i.Rate < leastRate:
		return fmt.Errorf("rate %d bit/s: need %d bit/s at least", i.Rate, leastRate)
	case i.Queue < 1 || i.Queue > MaxQueue:
		return fmt.Errorf("queue of %d frames: need 1 to %d", i.Queue, MaxQueue)
	}
	return nil
}

// ParseLoss reads a percentage such as 0.1%, and gives it as a probability.
func ParseLoss(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if !percent || err != nil || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("loss %q: need a percentage such as 0.1%%", s)
	}
	return v / 100, nil
}

// FormatLoss is the inverse of ParseLoss.
func FormatLoss(p float64) string { return strconv.FormatFloat(p*100, 'g', 6, 64) + "%" }

var rateUnits = []struct {
	name  string
	worth float64
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// ParseRate reads a rate such as 100mbit, and gives it in bit/s.
func ParseRate(s string) (uint64, error) {
	bad := fmt.Errorf("rate %q: need a number and bit, kbit, mbit or gbit, such as 100mbit, of 1kbit to 100gbit", s)
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(strings.ToLower(s), u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !(v*u.worth >= leastRate && v*u.worth <= 100e9) {
			return 0, bad
		}
		return uint64(math.Round(v * u.worth)), nil
	}
	return 0, bad
}

// FormatRate is the inverse of ParseRate.
func FormatRate(rate uint64) string {
	for _, u := range rateUnits {
		if v := float64(rate) / u.worth; v >= 1 {
			return strconv.FormatFloat(v, 'g', 6, 64) + u.name
		}
	}
	return "0bit"
}

// Direction is one of the two of a link: from its end a, as the topology calls it, to its end b, or back.
type Direction int

// The directions.
const (
	AToB Direction = iota
	BToA
)

// Directions is all of them.
var Directions = []Direction{AToB, BToA}

// Reverse is the other direction.
func (d Direction) Reverse() Direction { return 1 - d }

// String gives "a to b" or "b to a".
func (d Direction) String() string { return [...]string{"a to b", "b to a"}[d] }

// Counts are of one direction since it was impaired first.
type Counts struct {
	Frames  uint64 `json:"frames"`  // came in
	Sent    uint64 `json:"sent"`    // went out
	Lost    uint64 `json:"lost"`    // by the impairment's loss
	Full    uint64 `json:"full"`    // dropped: the queue, or the memory for frames under way, was full
	Missed  uint64 `json:"missed"`  // dropped: the process was too slow to read them
	Refused uint64 `json:"refused"` // dropped: the other side did not take them
	Held    uint64 `json:"held"`    // are under way now
}

// State is what a link does at present: the impairment of each Direction, nil where it does nothing.
type State struct {
	Impairments [2]*Impairment `json:"impairments"`
	Counts      [2]Counts      `json:"counts"`
}

// Clear tells whether nothing is impaired.
func (s *State) Clear() bool { return s.Impairments[AToB] == nil && s.Impairments[BToA] == nil }
