package v1alpha1

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

var equal = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}),
}

// notCarried are fields that no message carries, on purpose.
var notCarried = map[string]string{
	"Constraints.Hard.TargetPrice":          "a wanted price is a preference only",
	"PathRequest.Bounds.MaxRealDelayUS":     "a PCE needs nothing of the CST",
	"PathRequest.Bounds.MinSlots":           "a PCE needs nothing of the CST",
	"PathRequest.Bounds.MaxComputingTimeMS": "a PCE needs nothing of the CST",
	"PathRequest.Bounds.MaxPrice":           "a PCE needs nothing of the CST",
	"PathRequest.Bounds.MinSecurity":        "a PCE needs nothing of the CST",
	"PathRequest.Bounds.MinReputation":      "a PCE needs nothing of the CST",
	"PathRequest.Bounds.TargetPrice":        "a PCE needs nothing of the CST",
}

// roundTrip checks for arbitrary values of T that they survive encoding, the wire and decoding, that the values had every
// field of T set at some time, and the messages every field of M.
func roundTrip[T any, M proto.Message](t *testing.T, encode func(*T) M, decode func(M) (T, error)) {
	t.Helper()
	fields, messageFields := map[string]bool{}, map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		in := arbitrary[T](t)
		m := encode(&in)
		out, err := decode(overTheWire(t, m))
		if err != nil {
			t.Fatalf("decode: %v\nvalue: %+v", err, in)
		}
		if diff := cmp.Diff(in, out, equal); diff != "" {
			t.Fatalf("round trip (-sent +received):\n%s", diff)
		}
		markFields(reflect.ValueOf(in), reflect.TypeFor[T]().Name(), fields)
		markMessage(m.ProtoReflect(), messageFields)
	})
	for _, f := range leaves(reflect.TypeFor[T](), reflect.TypeFor[T]().Name()) {
		if !fields[f] && !excused(f) {
			t.Errorf("%s was never set: the generator does not reach it", f)
		}
	}
	var m M
	for _, f := range messageLeaves(m.ProtoReflect().Descriptor(), map[protoreflect.FullName]bool{}) {
		if !messageFields[f] {
			t.Errorf("message field %s is never set by the encoder", f)
		}
	}
}

func overTheWire[M proto.Message](t *rapid.T, m M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	received := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(b, received); err != nil {
		t.Fatal(err)
	}
	return received
}

func excused(field string) bool {
	for f := range notCarried {
		if len(field) >= len(f) && field[len(field)-len(f):] == f {
			return true
		}
	}
	return false
}

// isLeaf tells whether a struct counts as one field.
func isLeaf(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.AddrPort](), reflect.TypeFor[netip.Prefix](),
		reflect.TypeFor[time.Time](), reflect.TypeFor[cats.Transaction]():
		return true
	}
	_, optional := t.FieldByName("Present")
	return optional
}

func leaves(t reflect.Type, path string) []string {
	switch {
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Pointer:
		return leaves(t.Elem(), path)
	case t.Kind() != reflect.Struct || isLeaf(t):
		return []string{path}
	}
	var all []string
	for i := range t.NumField() {
		all = append(all, leaves(t.Field(i).Type, path+"."+t.Field(i).Name)...)
	}
	return all
}

func markFields(v reflect.Value, path string, seen map[string]bool) {
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			markFields(v.Elem(), path, seen)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			markFields(v.Index(i), path, seen)
		}
	case v.Kind() != reflect.Struct || isLeaf(v.Type()):
		if !v.IsZero() {
			seen[path] = true
		}
	default:
		for i := range v.NumField() {
			markFields(v.Field(i), path+"."+v.Type().Field(i).Name, seen)
		}
	}
}

func messageLeaves(d protoreflect.MessageDescriptor, done map[protoreflect.FullName]bool) []string {
	if done[d.FullName()] {
		return nil
	}
	done[d.FullName()] = true
	var all []string
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		all = append(all, string(f.FullName()))
		if f.Message() != nil && !f.IsMap() {
			all = append(all, messageLeaves(f.Message(), done)...)
		}
	}
	return all
}

func markMessage(m protoreflect.Message, seen map[string]bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		seen[string(f.FullName())] = true
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				markMessage(v.List().Get(i).Message(), seen)
			}
		default:
			markMessage(v.Message(), seen)
		}
		return true
	})
}

func TestRoundTrip(t *testing.T) {
	t.Run("SciReport", func(t *testing.T) { roundTrip(t, EncodeReport, DecodeReport) })
	t.Run("ReportVerdict", func(t *testing.T) {
		roundTrip(t, func(v *cats.ReportVerdict) *pb.ReportVerdict { return EncodeVerdict(*v) }, DecodeVerdict)
	})
	t.Run("Feedback", func(t *testing.T) { roundTrip(t, EncodeFeedback, DecodeFeedback) })
	t.Run("PolicyResult", func(t *testing.T) {
		roundTrip(t, func(v *cats.PolicyResult) *pb.PolicyResult { return EncodePolicyResult(*v) }, DecodePolicyResult)
	})
	t.Run("ServiceRequest", func(t *testing.T) { roundTrip(t, EncodeServiceRequest, DecodeServiceRequest) })
	t.Run("PathRequest", func(t *testing.T) {
		roundTrip(t,
			func(r *cats.PathRequest) *pb.PathRequest { return EncodePathRequest(r, sent) },
			func(m *pb.PathRequest) (cats.PathRequest, error) { return DecodePathRequest(m, sent) })
	})
	t.Run("PathReply", func(t *testing.T) { roundTrip(t, EncodePathReply, DecodePathReply) })
	t.Run("Binding", func(t *testing.T) { roundTrip(t, EncodeBinding, DecodeBinding) })
	t.Run("BindingStatus", func(t *testing.T) { roundTrip(t, EncodeBindingStatus, DecodeBindingStatus) })
	t.Run("MetricUpdate", func(t *testing.T) {
		roundTrip(t,
			func(u *cats.MetricUpdate) *pb.MetricUpdate { return EncodeMetricUpdate(u, seal(u.Sequence)) },
			func(m *pb.MetricUpdate) (cats.MetricUpdate, error) {
				u, auth, err := DecodeMetricUpdate(m)
				return u, sealKept(u.Sequence, auth, err)
			})
	})
	t.Run("NetworkUpdate", func(t *testing.T) {
		roundTrip(t,
			func(u *cats.NetworkUpdate) *pb.NetworkUpdate { return EncodeNetworkUpdate(u, seal(u.Sequence)) },
			func(m *pb.NetworkUpdate) (cats.NetworkUpdate, error) {
				u, auth, err := DecodeNetworkUpdate(m)
				return u, sealKept(u.Sequence, auth, err)
			})
	})
	t.Run("SteeringBatch", func(t *testing.T) {
		roundTrip(t,
			func(b *cats.SteeringBatch) *pb.SteerResponse { return one(EncodeSteering(b)) },
			func(m *pb.SteerResponse) (cats.SteeringBatch, error) {
				if proto.Size(m) == 0 { // an empty batch makes no message
					return cats.SteeringBatch{}, nil
				}
				return DecodeSteering(m)
			})
	})
	t.Run("ForwarderBatch", testForwarderBatch)
}

// seal gives a seal that depends on n, also none.
func seal(n uint64) cats.Auth {
	switch n % 3 {
	case 0:
		return cats.Auth{Algorithm: cats.AuthEd25519, KeyID: "key-1", Value: slices.Repeat([]byte{byte(n)}, 64)}
	case 1:
		return cats.Auth{Algorithm: cats.AuthHMACSHA256, KeyID: "key-2", Value: slices.Repeat([]byte{byte(n)}, 32)}
	}
	return cats.Auth{}
}

func sealKept(n uint64, auth cats.Auth, err error) error {
	if err == nil && !reflect.DeepEqual(auth, seal(n)) {
		return fmt.Errorf("seal %+v, sent %+v", auth, seal(n))
	}
	return err
}

// one gives the only message of a batch that fits one, an empty one for none.
func one(list []*pb.SteerResponse) *pb.SteerResponse {
	switch len(list) {
	case 0:
		return &pb.SteerResponse{}
	case 1:
		return list[0]
	}
	panic("a small batch in several messages")
}

func testForwarderBatch(t *testing.T) {
	fields, messageFields := map[string]bool{}, map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		in := arbitrary[cats.ForwarderBatch](t)
		if in.Hello == nil {
			in.Hello = new(cats.ForwarderHello)
			fill(t, reflect.ValueOf(in.Hello).Elem())
		}
		var reader ForwarderReader
		var out cats.ForwarderBatch
		for _, m := range EncodeForwarder(&in) {
			markMessage(m.ProtoReflect(), messageFields)
			b, err := reader.Next(overTheWire(t, m))
			if err != nil {
				t.Fatal(err)
			}
			merge(&out, &b)
		}
		if diff := cmp.Diff(in, out, equal); diff != "" {
			t.Fatalf("round trip (-sent +received):\n%s", diff)
		}
		markFields(reflect.ValueOf(in), "ForwarderBatch", fields)
	})
	for _, f := range leaves(reflect.TypeFor[cats.ForwarderBatch](), "ForwarderBatch") {
		if !fields[f] && !excused(f) {
			t.Errorf("%s was never set: the generator does not reach it", f)
		}
	}
	messageFields["margay.v1alpha1.ForwarderHello.more"] = true // TestLargeBatches
	for _, f := range messageLeaves((&pb.SteerRequest{}).ProtoReflect().Descriptor(), map[protoreflect.FullName]bool{}) {
		if !messageFields[f] {
			t.Errorf("message field %s is never set by the encoder", f)
		}
	}
}

func merge(to, b *cats.ForwarderBatch) {
	if b.Hello != nil {
		to.Hello = b.Hello
	}
	if b.Attachments != nil {
		to.Attachments = b.Attachments
	}
	to.Provisioned = append(to.Provisioned, b.Provisioned...)
	to.Statuses = append(to.Statuses, b.Statuses...)
	to.Requests = append(to.Requests, b.Requests...)
}
