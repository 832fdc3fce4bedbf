package wiretest_test

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
	"github.com/margay-net/margay/internal/wire/wiretest"
)

// Every message here is taken, and with one element more it is not: it is the largest of its kind.
func TestTheLargestMessages(t *testing.T) {
	t.Run("report", func(t *testing.T) {
		r := wiretest.Report("edge-1", math.MaxUint64)
		m := v1alpha1.EncodeReport(&r)
		if size := proto.Size(m); size > v1alpha1.MaxReportOctets {
			t.Errorf("%d octets, a transport takes %d", size, v1alpha1.MaxReportOctets)
		}
		if _, err := v1alpha1.DecodeReport(m); err != nil {
			t.Error(err)
		}
		r.Services = append(r.Services, cats.ServiceReport{CSID: "another", Version: "1", Health: cats.Healthy})
		if _, err := v1alpha1.DecodeReport(v1alpha1.EncodeReport(&r)); cats.ReasonOf(err) != cats.ReasonOversize {
			t.Errorf("with one more service: %v", err)
		}
	})
	t.Run("metric update", func(t *testing.T) {
		u := wiretest.MetricUpdate("csma-1")
		auth := cats.Auth{Algorithm: cats.AuthEd25519, KeyID: wiretest.Wide(0, 63), Value: make([]byte, 64)}
		m := v1alpha1.EncodeMetricUpdate(&u, auth)
		if size := proto.Size(m); size > v1alpha1.MaxMessageOctets {
			t.Errorf("%d octets, a transport takes %d", size, v1alpha1.MaxMessageOctets)
		}
		if _, _, err := v1alpha1.DecodeMetricUpdate(m); err != nil {
			t.Error(err)
		}
		u.Records = append(u.Records, cats.Record{CSID: "another", CSCIID: "another"})
		if _, _, err := v1alpha1.DecodeMetricUpdate(v1alpha1.EncodeMetricUpdate(&u, auth)); cats.ReasonOf(err) != cats.ReasonOversize {
			t.Errorf("with one more record: %v", err)
		}
	})
	t.Run("steering", func(t *testing.T) {
		key := cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: cats.Tuple{
			Protocol: cats.TCP, Source: netip.MustParseAddrPort("192.0.2.10:51000"), Target: netip.MustParseAddrPort("192.0.2.100:443"),
		}}
		locator := netip.MustParseAddrPort("198.51.100.21:443")
		b := wiretest.Steering(cats.Binding{
			Version: 1, Match: key, CSID: wiretest.CSID(0), ServiceNumber: 1, CSCIID: wiretest.CSCIID(0),
			Locator: cats.Locator{Protocol: cats.TCP, Address: locator}, Attachment: netip.MustParseAddr("2001:db8:0:e2::21"),
			Ingress: wiretest.Wide(0, 63), Egress: wiretest.Wide(1, 63), Idle: time.Hour, Slots: 1, PolicyVersion: wiretest.Wide(0, 63),
			Decided: 1_700_000_000_000_000_000,
			Reverse: cats.Reverse{
				Service: cats.Tuple{Protocol: cats.TCP, Source: locator, Target: key.Tuple.Source}, Client: key.Tuple.Reverse(), Restore: key.Tuple.Target,
			},
		})
		messages := v1alpha1.EncodeSteering(&b)
		if len(messages) != 1 {
			t.Fatalf("%d messages", len(messages))
		}
		if size := proto.Size(messages[0]); size > v1alpha1.MaxMessageOctets {
			t.Errorf("%d octets, a transport takes %d", size, v1alpha1.MaxMessageOctets)
		}
		if _, err := v1alpha1.DecodeSteering(messages[0]); err != nil {
			t.Error(err)
		}
		b.Refusals = append(b.Refusals, b.Refusals[0])
		if n := len(v1alpha1.EncodeSteering(&b)); n != 2 {
			t.Errorf("with one more refusal: %d messages", n)
		}
	})
}
