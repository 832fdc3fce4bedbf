package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// kind is the first octet of a frame's body. The numbers are those of files on disk: they never change.
type kind uint8

const (
	kindBoot      kind = 1 // identity of the kernel's boot
	kindEpoch     kind = 2 // shard (4), term (8), counter (8)
	kindPut       kind = 3 // half (1), draining (1), reason (4), Binding as protobuf
	kindRemove    kind = 4 // half (1), transaction (16)
	kindProvision kind = 5 // SteerResponse with the Provision of a shard as protobuf
	kindTotals    kind = 6 // requests (8), released (8), then reason (4) and packets (8) of each that is not zero
	kindNone      kind = 7 // shard (4), which has no provision
	kindLast           = kindNone
)

const (
	headerSize = 8
	maxBody    = v1alpha1.MaxMessageOctets
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	encoding   = proto.MarshalOptions{Deterministic: true}
)

// errTorn tells that the octets do not go on with a whole frame.
var errTorn = errors.New("no whole frame")

// nextFrame gives the body of the first frame of b and how many octets the frame takes.
func nextFrame(b []byte) (body []byte, size int, err error) {
	if body = framed(b); body == nil || !sound(b, body) {
		return nil, 0, errTorn
	}
	return body, headerSize + len(body), nil
}

// framed gives the body of a frame at the start of b by its length alone; nil where there can be none.
func framed(b []byte) []byte {
	if len(b) <= headerSize {
		return nil
	}
	n := binary.BigEndian.Uint32(b)
	if n == 0 || n > maxBody || uint64(n) > uint64(len(b)-headerSize) {
		return nil
	}
	return b[headerSize : headerSize+int(n)]
}

// sound compares the body of the frame at the start of b with its checksum.
func sound(b, body []byte) bool {
	return crc32.Checksum(body, castagnoli) == binary.BigEndian.Uint32(b[4:])
}

// appendFrame appends a frame whose body write appends.
func appendFrame(b []byte, write func([]byte) ([]byte, error)) ([]byte, error) {
	start := len(b)
	framed, err := write(append(b, make([]byte, headerSize)...))
	if err != nil {
		return b, err
	}
	body := framed[start+headerSize:]
	if len(body) > maxBody {
		return b, fmt.Errorf("a journal entry of %d octets, at most %d fit: %w", len(body), maxBody, cats.ReasonOversize)
	}
	binary.BigEndian.PutUint32(framed[start:], uint32(len(body)))
	binary.BigEndian.PutUint32(framed[start+4:], crc32.Checksum(body, castagnoli))
	return framed, nil
}

func appendBoot(b []byte, boot string) ([]byte, error) {
	return appendFrame(b, func(b []byte) ([]byte, error) { return append(append(b, byte(kindBoot)), boot...), nil })
}

func appendEpoch(b []byte, shard cats.Shard, epoch cats.Epoch) ([]byte, error) {
	return appendFrame(b, func(b []byte) ([]byte, error) {
		b = append(b, byte(kindEpoch))
		b = binary.BigEndian.AppendUint32(b, uint32(shard))
		b = binary.BigEndian.AppendUint64(b, epoch.Term)
		return binary.BigEndian.AppendUint64(b, epoch.Counter), nil
	})
}

func appendPut(b []byte, r *forwarder.Record) ([]byte, error) {
	return appendFrame(b, func(b []byte) ([]byte, error) {
		draining := byte(0)
		if r.Draining {
			draining = 1
		}
		b = append(b, byte(kindPut), byte(r.Half), draining)
		b = binary.BigEndian.AppendUint32(b, uint32(v1alpha1.EncodeReason(r.Reason)))
		return encoding.MarshalAppend(b, v1alpha1.EncodeBinding(&r.Binding))
	})
}

func appendRemove(b []byte, half cats.Half, t cats.Transaction) ([]byte, error) {
	return appendFrame(b, func(b []byte) ([]byte, error) {
		return append(append(b, byte(kindRemove), byte(half)), t[:]...), nil
	})
}

func appendProvision(b []byte, shard cats.Shard, p *cats.Provision) ([]byte, error) {
	return appendFrame(b, func(b []byte) ([]byte, error) {
		if p == nil {
			return binary.BigEndian.AppendUint32(append(b, byte(kindNone)), uint32(shard)), nil
		}
		b = append(b, byte(kindProvision))
		return encoding.MarshalAppend(b, v1alpha1.EncodeSteering(&cats.SteeringBatch{Provision: p})[0])
	})
}

func appendTotals(b []byte, t *Totals) ([]byte, error) {
	return appendFrame(b, func(b []byte) ([]byte, error) {
		b = append(b, byte(kindTotals))
		b = binary.BigEndian.AppendUint64(b, t.Requests)
		b = binary.BigEndian.AppendUint64(b, t.Released)
		for _, r := range cats.Reasons() {
			if n := t.Drops[r]; n > 0 {
				b = binary.BigEndian.AppendUint32(b, uint32(v1alpha1.EncodeReason(r)))
				b = binary.BigEndian.AppendUint64(b, n)
			}
		}
		return b, nil
	})
}

func appendEntry(b []byte, e *forwarder.JournalEntry) ([]byte, error) {
	switch e.Kind {
	case forwarder.JournalPut:
		return appendPut(b, &e.Record)
	case forwarder.JournalRemove:
		return appendRemove(b, e.Record.Half, e.Record.Binding.Transaction)
	case forwarder.JournalEpoch:
		return appendEpoch(b, e.Shard, e.Epoch)
	case forwarder.JournalProvision:
		return appendProvision(b, e.Shard, e.Provision)
	}
	return b, fmt.Errorf("journal entry of unknown kind %d", e.Kind)
}

// decodePut reads the body of a kindPut frame after its kind.
func decodePut(b []byte) (r forwarder.Record, err error) {
	if len(b) < 6 || b[0] > byte(cats.EgressHalf) || b[1] > 1 {
		return r, fmt.Errorf("a record that begins with % x", b[:min(len(b), 6)])
	}
	r.Half, r.Draining = cats.Half(b[0]), b[1] == 1
	if r.Reason, err = v1alpha1.DecodeReason(pb.Reason(binary.BigEndian.Uint32(b[2:]))); err != nil {
		return r, err
	}
	var m pb.Binding
	if err := proto.Unmarshal(b[6:], &m); err != nil {
		return r, err
	}
	r.Binding, err = v1alpha1.DecodeBinding(&m)
	return r, err
}

func decodeProvision(b []byte) (*cats.Provision, error) {
	var m pb.SteerResponse
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	batch, err := v1alpha1.DecodeSteering(&m)
	if err == nil && batch.Provision == nil {
		err = errors.New("a provision entry without provision")
	}
	return batch.Provision, err
}

func decodeTotals(b []byte) (t Totals, err error) {
	if len(b) < 16 || (len(b)-16)%12 != 0 {
		return t, fmt.Errorf("totals of %d octets", len(b))
	}
	t = Totals{Requests: binary.BigEndian.Uint64(b), Released: binary.BigEndian.Uint64(b[8:]), Drops: make(map[cats.Reason]uint64)}
	for b = b[16:]; len(b) > 0; b = b[12:] {
		r, err := v1alpha1.DecodeReason(pb.Reason(binary.BigEndian.Uint32(b)))
		if err != nil {
			return Totals{}, err
		}
		t.Drops[r] = binary.BigEndian.Uint64(b[4:])
	}
	return t, nil
}
