package impair

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// pass puts numbered frames of a length through a line, one at each instant, and gives which leave, and when.
func pass(l *line, length int, at []int64) (numbers []int, times []int64) {
	for i, t := range at {
		frame := make([]byte, length)
		binary.BigEndian.PutUint32(frame, uint32(i))
		l.enter(frame, t)
	}
	for {
		t, ok := l.next()
		if !ok {
			return numbers, times
		}
		if frames := l.due(t-1, nil, 1); len(frames) > 0 {
			panic("a frame is due before its time")
		}
		for _, f := range l.due(t, nil, 1) {
			numbers, times = append(numbers, int(binary.BigEndian.Uint32(f))), append(times, t)
			if len(f) != length {
				panic("a frame has changed its length")
			}
		}
		l.done(1)
	}
}

func newSet(i Impairment) *line {
	l := newLine(1600)
	l.change(i, AToB, 0)
	return l
}

func every(interval int64, n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i) * interval
	}
	return all
}

func TestDelayAndJitter(t *testing.T) {
	at := every(20*ms, 1000)
	l := newSet(Impairment{Delay: 5 * time.Millisecond, Jitter: 2 * time.Millisecond, Queue: 1, Seed: 7})
	numbers, times := pass(l, 60, at)
	if len(numbers) != len(at) {
		t.Fatalf("%d of %d frames came out", len(numbers), len(at))
	}
	least, most, sum := int64(1<<62), int64(0), int64(0)
	for i := range times {
		d := times[i] - at[i]
		least, most, sum = min(least, d), max(most, d), sum+d
	}
	if least < 3*ms || most > 7*ms || least > 3*ms+ms/10 || most < 7*ms-ms/10 {
		t.Errorf("delays from %d to %d ns, want nearly all of 3 to 7 ms", least, most)
	}
	if mean := sum / int64(len(times)); mean < 5*ms-ms/5 || mean > 5*ms+ms/5 {
		t.Errorf("mean delay %d ns, want about 5 ms", mean)
	}
}

func TestTheOrderIsKeptWhateverTheJitter(t *testing.T) {
	l := newSet(Impairment{Delay: 50 * time.Millisecond, Jitter: 50 * time.Millisecond, Queue: 1, Seed: 3})
	numbers, times := pass(l, 60, every(ms/10, 2000))
	if len(numbers) != 2000 || !slices.IsSorted(numbers) || !slices.IsSorted(times) {
		t.Errorf("%d frames came out, in order: %t", len(numbers), slices.IsSorted(numbers))
	}
}

func TestLossIsThatOfTheSeed(t *testing.T) {
	fate := func(seed uint64, d Direction, other Impairment) []int {
		other.Loss, other.Seed = 0.01, seed
		l := newLine(1600)
		l.change(other, d, 0)
		numbers, _ := pass(l, 60, every(ms, 10_000))
		if l.counts.Lost != uint64(10_000-len(numbers)) || l.counts.Frames != 10_000 {
			t.Errorf("counts %+v with %d frames out", l.counts, len(numbers))
		}
		return numbers
	}
	first := fate(1, AToB, Impairment{Queue: 1})
	// 100 are expected; the standard deviation is 10.
	if lost := 10_000 - len(first); lost < 50 || lost > 150 {
		t.Errorf("%d of 10,000 were lost, want about 100", lost)
	}
	if !slices.Equal(first, fate(1, AToB, Impairment{Queue: 1})) {
		t.Error("one seed, two fates")
	}
	if !slices.Equal(first, fate(1, AToB, Impairment{Queue: 1000, Rate: 1e9, Delay: time.Second, Jitter: time.Millisecond})) {
		t.Error("delay, jitter and rate change which frames are lost")
	}
	if slices.Equal(first, fate(2, AToB, Impairment{Queue: 1})) || slices.Equal(first, fate(1, BToA, Impairment{Queue: 1})) {
		t.Error("another seed or direction gives the same fate")
	}
	for _, c := range []struct {
		loss float64
		want int
	}{{0, 100}, {1, 0}} {
		if numbers, _ := pass(newSet(Impairment{Loss: c.loss, Queue: 1}), 60, every(ms, 100)); len(numbers) != c.want {
			t.Errorf("loss %g: %d of 100 came out", c.loss, len(numbers))
		}
	}
}

func TestRateAndQueue(t *testing.T) {
	// 1,000 octets at 8 Mbit/s take 1 ms each.
	l := newSet(Impairment{Rate: 8e6, Queue: 100, Delay: 10 * time.Millisecond})
	numbers, times := pass(l, 1000, every(0, 50))
	for i, at := range times {
		if want := int64(i+1)*ms + 10*ms; at != want {
			t.Fatalf("frame %d leaves at %d ns, want %d", i, at, want)
		}
	}
	if len(numbers) != 50 || l.counts.Full != 0 {
		t.Errorf("%d frames, counts %+v", len(numbers), l.counts)
	}
	// Above the rate the queue fills, and the excess is dropped at its tail; the rate is what comes out.
	l = newSet(Impairment{Rate: 8e6, Queue: 20})
	numbers, times = pass(l, 1000, every(ms/4, 4000))
	if want := 1000 + 20; len(numbers) < want-1 || len(numbers) > want+1 || l.counts.Full != uint64(4000-len(numbers)) {
		t.Errorf("%d frames in 1 s at 1,000 a second with a queue of 20, counts %+v", len(numbers), l.counts)
	}
	for i := 1; i < len(times); i++ {
		if times[i]-times[i-1] < ms {
			t.Fatalf("frames %d and %d leave within %d ns", i-1, i, times[i]-times[i-1])
		}
	}
	// The queue has room again when the rate has worked it off: frames under way for the delay do not count.
	l = newSet(Impairment{Rate: 8e6, Queue: 1, Delay: time.Hour})
	for i := range 10 {
		l.enter(make([]byte, 1000), int64(i)*ms)
	}
	if l.counts.Full != 0 || l.count != 10 {
		t.Errorf("counts %+v, %d held", l.counts, l.count)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	l := newSet(Impairment{Delay: time.Minute, Queue: 1})
	l.most = 100
	for i := range 1000 {
		l.enter(make([]byte, 100), int64(i))
	}
	if l.count != 100 || l.counts.Full != 900 {
		t.Errorf("%d held, counts %+v", l.count, l.counts)
	}
	l.done(100)
	for i := range 100 {
		l.enter(make([]byte, 100), int64(i))
	}
	if len(l.spare) != 0 || l.count != 100 {
		t.Errorf("memory is not used again: %d spare", len(l.spare))
	}
}

func TestChangeIsNotHeldUpByWhatWasBefore(t *testing.T) {
	l := newSet(Impairment{Delay: time.Minute, Queue: 1})
	for i := range 10 {
		l.enter(make([]byte, 100), int64(i))
	}
	l.change(Impairment{Delay: 5 * time.Millisecond, Queue: 1}, AToB, 20)
	l.enter(make([]byte, 100), 30)
	if got := len(l.due(30+5*ms, nil, 64)); got != 11 {
		t.Errorf("%d of 11 frames leave by the new delay", got)
	}
	l.done(11)
	l.enter(make([]byte, 100), 0)
	l.change(Impairment{Delay: time.Hour, Queue: 1}, AToB, 1)
	if got := len(l.due(6*ms, nil, 64)); got != 1 {
		t.Error("a longer delay holds back what was under way")
	}
}

func TestImpairmentsAreChecked(t *testing.T) {
	for _, c := range []struct {
		i    Impairment
		want string
	}{
		{Impairment{Queue: 1}, ""},
		{Impairment{Queue: 1, Delay: time.Second, Jitter: time.Second, Loss: 1, Rate: 1000}, ""},
		{Impairment{Queue: 1, Delay: -1}, "delay"},
		{Impairment{Queue: 1, Delay: time.Hour}, "delay 1h0m0s"},
		{Impairment{Queue: 1, Jitter: 1}, "no frame arrives before"},
		{Impairment{Queue: 1, Loss: 1.5}, "loss 150%"},
		{Impairment{Queue: 1, Rate: 5}, "rate 5 bit/s"},
		{Impairment{}, "queue of 0"},
	} {
		err := c.i.Check()
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.i, err, c.want)
		}
	}
}

func TestRatesAndLossesAreRead(t *testing.T) {
	for _, c := range []struct {
		text string
		rate uint64
	}{{"100mbit", 100e6}, {"1.5Gbit", 1.5e9}, {"64kbit", 64000}, {"9600bit", 9600}} {
		got, err := ParseRate(c.text)
		if err != nil || got != c.rate {
			t.Errorf("%s: %d, %v", c.text, got, err)
		}
		if back := FormatRate(got); !strings.EqualFold(back, strings.Replace(c.text, "9600bit", "9.6kbit", 1)) {
			t.Errorf("%s comes back as %s", c.text, back)
		}
	}
	for _, text := range []string{"", "100", "mbit", "-1mbit", "1bit", "nanmbit", "infgbit", "1e30gbit", "1 mbit"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
	for _, c := range []struct {
		text string
		loss float64
	}{{"0.1%", 0.001}, {"0%", 0}, {"100%", 1}} {
		if got, err := ParseLoss(c.text); err != nil || got != c.loss || FormatLoss(got) != c.text {
			t.Errorf("%s: %g, %v", c.text, got, err)
		}
	}
	for _, text := range []string{"", "1", "%", "-1%", "101%", "nan%"} {
		if got, err := ParseLoss(text); err == nil {
			t.Errorf("%q was read as %g", text, got)
		}
	}
}
