package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

// recordKey names a record: one binding may have both halves at one forwarder.
type recordKey struct {
	transaction cats.Transaction
	half        cats.Half
}

// state is what the frames read so far amount to.
type state struct {
	boot       string
	booted     bool // the boot is known
	records    map[recordKey]forwarder.Record
	epochs     map[cats.Shard]cats.Epoch
	provisions map[cats.Shard]*cats.Provision
	totals     Totals
}

func newState() *state {
	return &state{
		records: make(map[recordKey]forwarder.Record), epochs: make(map[cats.Shard]cats.Epoch),
		provisions: make(map[cats.Shard]*cats.Provision),
	}
}

// replay reads frames until the end of b, or until one is torn (errTorn) or makes no sense; it tells how many octets it
// took. An error says what stopped it before the end.
func (s *state) replay(b []byte) (taken int, err error) {
	for taken < len(b) {
		body, size, err := nextFrame(b[taken:])
		if err != nil {
			return taken, err
		}
		if err := s.apply(body); err != nil {
			return taken, err
		}
		taken += size
	}
	return taken, nil
}

// tail tells whether the octets that replay stopped before are what a crash can have left: the frame being written, and
// none after it. The kernel's own end can leave out what was not fsynced, in any order; then frames count only up to the
// last epoch, which was. boot is the present one.
func (s *state) tail(rest []byte, why error, boot string) bool {
	if !errors.Is(why, errTorn) || !s.booted {
		return false // the frame was written whole, or it is part of an image, which is on disk before it counts
	}
	budget := mostSearched
	for i := 1; i < len(rest); i++ {
		body := framed(rest[i:])
		if body == nil || kind(body[0]) < kindEpoch || kind(body[0]) > kindLast || s.boot != boot && kind(body[0]) != kindEpoch {
			continue
		}
		if budget -= len(body); budget < 0 || sound(rest[i:], body) {
			return false
		}
	}
	return true
}

// mostSearched bounds the octets that tail checks. After real damage the next frame is found long before.
const mostSearched = 1 << 30

func (s *state) apply(body []byte) error {
	k, rest := kind(body[0]), body[1:]
	if !s.booted && k != kindBoot {
		return fmt.Errorf("an entry of kind %d before the boot is named", k)
	}
	switch k {
	case kindBoot:
		if s.booted {
			return fmt.Errorf("the boot is named twice")
		}
		s.boot, s.booted = string(rest), true
	case kindEpoch:
		if len(rest) != 20 {
			return fmt.Errorf("an epoch of %d octets, need 20", len(rest))
		}
		shard := cats.Shard(binary.BigEndian.Uint32(rest))
		epoch := cats.Epoch{Term: binary.BigEndian.Uint64(rest[4:]), Counter: binary.BigEndian.Uint64(rest[12:])}
		if epoch.Compare(s.epochs[shard]) > 0 {
			s.epochs[shard] = epoch
		}
	case kindPut:
		r, err := decodePut(rest)
		if err != nil {
			return err
		}
		s.records[recordKey{r.Binding.Transaction, r.Half}] = r
	case kindRemove:
		if len(rest) != 1+len(cats.Transaction{}) || rest[0] > byte(cats.EgressHalf) {
			return fmt.Errorf("a removal of %d octets", len(rest))
		}
		delete(s.records, recordKey{cats.Transaction(rest[1:]), cats.Half(rest[0])})
	case kindProvision:
		p, err := decodeProvision(rest)
		if err != nil {
			return err
		}
		s.provisions[p.Shard] = p
	case kindNone:
		if len(rest) != 4 {
			return fmt.Errorf("a shard of %d octets, need 4", len(rest))
		}
		delete(s.provisions, cats.Shard(binary.BigEndian.Uint32(rest)))
	case kindTotals:
		t, err := decodeTotals(rest)
		if err != nil {
			return err
		}
		s.totals = t
	default:
		return fmt.Errorf("an entry of unknown kind %d", k)
	}
	return nil
}

// contents gives what is left in the present boot. Of another one only the epochs are.
func (s *state) contents(boot string) Contents {
	r := Contents{Restored: forwarder.Restored{Epochs: s.epochs}}
	if s.boot != boot {
		return r
	}
	for _, shard := range slices.Sorted(maps.Keys(s.provisions)) {
		r.Provisions = append(r.Provisions, s.provisions[shard])
	}
	r.Totals = s.totals
	for _, record := range s.records {
		r.Records = append(r.Records, record)
	}
	slices.SortFunc(r.Records, func(a, b forwarder.Record) int {
		if d := bytes.Compare(a.Binding.Transaction[:], b.Binding.Transaction[:]); d != 0 {
			return d
		}
		return int(a.Half) - int(b.Half)
	})
	return r
}

// image gives a whole file that amounts to r.
func image(boot string, r Contents) ([]byte, error) {
	b, err := appendBoot(nil, boot)
	if err != nil {
		return nil, err
	}
	for _, shard := range slices.Sorted(maps.Keys(r.Epochs)) {
		if b, err = appendEpoch(b, shard, r.Epochs[shard]); err != nil {
			return nil, err
		}
	}
	for _, p := range r.Provisions {
		if b, err = appendProvision(b, p.Shard, p); err != nil {
			return nil, err
		}
	}
	if b, err = appendTotals(b, &r.Totals); err != nil {
		return nil, err
	}
	for i := range r.Records {
		if b, err = appendPut(b, &r.Records[i]); err != nil {
			return nil, err
		}
	}
	return b, nil
}
