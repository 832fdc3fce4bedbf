package v1alpha1

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

func numbered(i int) cats.Transaction {
	var t cats.Transaction
	binary.BigEndian.PutUint64(t[8:], uint64(i)+1)
	return t
}

// A batch beyond the limits of one message is split, nothing is lost, and the order in which it is carried out stays.
func TestLargeBatches(t *testing.T) {
	const n = 2*MaxBatch + 10

	t.Run("steering", func(t *testing.T) {
		in := cats.SteeringBatch{Provision: &cats.Provision{Generation: 1}}
		for i := range n {
			in.Removes = append(in.Removes, cats.Remove{Transaction: numbered(i), Reason: cats.ReasonIdle})
			in.Drains = append(in.Drains, cats.Drain{Transaction: numbered(i), Reason: cats.ReasonIdle})
			in.Installs = append(in.Installs, cats.Install{Half: cats.EgressHalf, Binding: *validBinding(i)})
			in.Refusals = append(in.Refusals, cats.Refuse{Transaction: numbered(i), Reason: cats.ReasonOverload})
		}
		var out cats.SteeringBatch
		for i, m := range EncodeSteering(&in) {
			b, err := DecodeSteering(m)
			if err != nil {
				t.Fatal(err)
			}
			if b.Provision != nil {
				out.Provision = b.Provision
			}
			out.Removes = append(out.Removes, b.Removes...)
			out.Drains = append(out.Drains, b.Drains...)
			out.Installs = append(out.Installs, b.Installs...)
			out.Refusals = append(out.Refusals, b.Refusals...)
			for _, step := range []struct{ earlier, later int }{
				{len(out.Removes), len(out.Drains)}, {len(out.Drains), len(out.Installs)}, {len(out.Installs), len(out.Refusals)},
			} {
				if step.earlier < n && step.later > 0 {
					t.Fatalf("message %d begins with a later kind while %d of %d of an earlier one are sent", i, step.earlier, n)
				}
			}
		}
		if diff := cmp.Diff(in, out, equal); diff != "" {
			t.Fatal(diff)
		}
	})

	t.Run("forwarder", func(t *testing.T) {
		in := cats.ForwarderBatch{Hello: validHello()}
		for i := range n {
			in.Hello.Bindings = append(in.Hello.Bindings, cats.HeldBinding{Half: cats.EgressHalf, State: cats.Active, Binding: *validBinding(i)})
			in.Statuses = append(in.Statuses, cats.BindingStatus{Transaction: numbered(i), Forwarder: "EF-1"})
			in.Requests = append(in.Requests, *validRequest(i))
		}
		var reader ForwarderReader
		var out cats.ForwarderBatch
		for _, m := range EncodeForwarder(&in) {
			if size := proto.Size(m); size > MaxMessageOctets {
				t.Fatalf("message of %d octets", size)
			}
			b, err := reader.Next(m)
			if err != nil {
				t.Fatal(err)
			}
			merge(&out, &b)
		}
		if diff := cmp.Diff(in, out, equal); diff != "" {
			t.Fatal(diff)
		}
	})

	t.Run("empty", func(t *testing.T) {
		if a, b := EncodeSteering(&cats.SteeringBatch{}), EncodeForwarder(&cats.ForwarderBatch{}); len(a)+len(b) != 0 {
			t.Fatalf("messages of empty batches: %v %v", a, b)
		}
	})
}

// A session begins with one hello, in parts that agree.
func TestForwarderReader(t *testing.T) {
	hello := func(change func(*pb.ForwarderHello)) *pb.SteerRequest {
		h := validHello()
		m := encodeHello(h)[0]
		change(m)
		return &pb.SteerRequest{Hello: m}
	}
	first := hello(func(m *pb.ForwarderHello) { m.More = true })
	last := hello(func(*pb.ForwarderHello) {})
	request := EncodeForwarder(&cats.ForwarderBatch{Requests: []cats.ServiceRequest{*validRequest(0)}})[0]
	tests := []struct {
		name     string
		messages []*pb.SteerRequest
		reason   cats.Reason
	}{
		{"request without hello", []*pb.SteerRequest{request}, cats.ReasonMalformed},
		{"request between parts", []*pb.SteerRequest{first, request}, cats.ReasonMalformed},
		{"request beside a part", []*pb.SteerRequest{{Hello: first.Hello, Requests: request.Requests}}, cats.ReasonMalformed},
		{"second hello", []*pb.SteerRequest{last, last}, cats.ReasonDuplicate},
		{"other boot in a part", []*pb.SteerRequest{first, hello(func(m *pb.ForwarderHello) { m.BootId = "other" })}, cats.ReasonMalformed},
		{"other attachments in a part", []*pb.SteerRequest{first, hello(func(m *pb.ForwarderHello) { m.Attachments = nil })}, cats.ReasonMalformed},
		{"other prefixes in a part", []*pb.SteerRequest{first, hello(func(m *pb.ForwarderHello) { m.Attachments[0].SourcePrefixes = nil })}, cats.ReasonMalformed},
		{"attachments beside a part", []*pb.SteerRequest{{Hello: first.Hello, Attachments: &pb.Attachments{}}}, cats.ReasonMalformed},
		{"other epochs in a part", []*pb.SteerRequest{first, hello(func(m *pb.ForwarderHello) { m.Highest[0].Epoch.Term++ })}, cats.ReasonMalformed},
		{"empty message", []*pb.SteerRequest{last, {}}, cats.ReasonMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var reader ForwarderReader
			for i, m := range test.messages {
				b, err := reader.Next(m)
				if i < len(test.messages)-1 {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				if !errors.Is(err, test.reason) {
					t.Fatalf("batch %+v, error %v, want %s", b, err, test.reason)
				}
			}
		})
	}
}

// A person's text reaches the other side without control characters and within its limit, whatever a core wrote.
func TestDetailIsMadePrintable(t *testing.T) {
	long := ""
	for len(long) < 2*MaxDetail {
		long += "é\x1b[2J\n"
	}
	in := cats.BindingStatus{Transaction: numbered(0), Forwarder: "EF-1", Detail: long}
	out, err := DecodeBindingStatus(EncodeBindingStatus(&in))
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Detail) > MaxDetail || len(out.Detail) < MaxDetail-4 {
		t.Fatalf("detail of %d octets", len(out.Detail))
	}
}

// A message does not change when the core that it was made from goes on.
func TestMessagesShareNoMemory(t *testing.T) {
	b := validBinding(0)
	m := EncodeBinding(b)
	before := proto.Clone(m)
	b.Transaction[0] = 0xff
	b.Path.Nodes[0] = "changed"
	if !proto.Equal(m, before) {
		t.Fatal("the message changed with the binding")
	}
	metrics := &cats.Metrics{Extensions: map[string]float64{"a": 1}}
	u := cats.MetricUpdate{Records: []cats.Record{{Metrics: *metrics}}}
	encoded := EncodeMetricUpdate(&u, cats.Auth{})
	metrics.Extensions["a"] = 2
	if v := encoded.Records[0].Metrics.Extensions["a"]; v != 1 {
		t.Fatalf("extension became %v", v)
	}
}

// The deadline of a path request is relative: the clocks of C-PS and PCE need not agree.
func TestPathDeadlineIsRelative(t *testing.T) {
	r := validPathRequest()
	r.Deadline = sent.Add(500 * time.Millisecond)
	const received = sent + cats.Instant(5*time.Hour)
	out, err := DecodePathRequest(EncodePathRequest(r, sent), received)
	if err != nil || out.Deadline != received.Add(500*time.Millisecond) {
		t.Fatalf("deadline %d, error %v", out.Deadline, err)
	}
	out, err = DecodePathRequest(EncodePathRequest(r, sent.Add(time.Second)), received)
	if err != nil || out.Deadline != received {
		t.Fatalf("a deadline that has passed: %d, error %v", out.Deadline, err)
	}
}
