package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// again decodes octets as M; what is accepted has to survive another round trip, or it was not understood.
func again[T any, M proto.Message](t *testing.T, octets []byte, m M, decode func(M) (T, error), encode func(*T) M) {
	if proto.Unmarshal(octets, m) != nil {
		return
	}
	v, err := decode(m)
	if err != nil {
		return
	}
	w, err := decode(encode(&v))
	if err != nil {
		t.Fatalf("accepted %+v, but not what it encodes to: %v", v, err)
	}
	if diff := cmp.Diff(v, w, equal); diff != "" {
		t.Fatal(diff)
	}
}

// FuzzDecode feeds arbitrary octets to every decoder of what comes from the network.
func FuzzDecode(f *testing.F) {
	for kind, m := range []proto.Message{
		EncodeServiceRequest(validRequest(0)),
		EncodePathRequest(validPathRequest(), sent),
		EncodePathReply(validPathReply()),
		EncodeBinding(validBinding(0)),
		EncodeMetricUpdate(validMetricUpdate(), seal(0)),
		EncodeNetworkUpdate(validNetworkUpdate(), cats.Auth{}),
		EncodeSteering(&cats.SteeringBatch{
			Provision: validProvision(), Installs: []cats.Install{{Binding: *validBinding(1)}},
			Removes: []cats.Remove{{Transaction: numbered(1)}}, Drains: []cats.Drain{{Transaction: numbered(1)}},
			Refusals: []cats.Refuse{{Transaction: numbered(1), Reason: cats.ReasonTimeout}},
		})[0],
		EncodeForwarder(&cats.ForwarderBatch{Hello: validHello()})[0],
		EncodeFeedback(&cats.Feedback{Kind: cats.FeedbackQuery, CSIDs: []cats.CSID{"S1"}}),
	} {
		octets, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(kind), octets)
	}
	f.Fuzz(func(t *testing.T, kind uint8, octets []byte) {
		switch kind {
		case 0:
			again(t, octets, &pb.ServiceRequest{}, DecodeServiceRequest, EncodeServiceRequest)
		case 1:
			again(t, octets, &pb.PathRequest{},
				func(m *pb.PathRequest) (cats.PathRequest, error) { return DecodePathRequest(m, sent) },
				func(r *cats.PathRequest) *pb.PathRequest { return EncodePathRequest(r, sent) })
		case 2:
			again(t, octets, &pb.PathReply{}, DecodePathReply, EncodePathReply)
		case 3:
			again(t, octets, &pb.Binding{}, DecodeBinding, EncodeBinding)
		case 4:
			again(t, octets, &pb.MetricUpdate{},
				func(m *pb.MetricUpdate) (cats.MetricUpdate, error) { u, _, err := DecodeMetricUpdate(m); return u, err },
				func(u *cats.MetricUpdate) *pb.MetricUpdate { return EncodeMetricUpdate(u, cats.Auth{}) })
		case 5:
			again(t, octets, &pb.NetworkUpdate{},
				func(m *pb.NetworkUpdate) (cats.NetworkUpdate, error) {
					u, _, err := DecodeNetworkUpdate(m)
					return u, err
				},
				func(u *cats.NetworkUpdate) *pb.NetworkUpdate { return EncodeNetworkUpdate(u, cats.Auth{}) })
		case 6:
			again(t, octets, &pb.SteerResponse{}, DecodeSteering,
				func(b *cats.SteeringBatch) *pb.SteerResponse { return EncodeSteering(b)[0] })
		case 7:
			var m pb.SteerRequest
			if proto.Unmarshal(octets, &m) == nil {
				_, _ = new(ForwarderReader).Next(&m) // must not panic; a batch may need several messages
			}
		case 8:
			again(t, octets, &pb.Feedback{}, DecodeFeedback, EncodeFeedback)
		}
	})
}
