// Package wiretest makes the largest messages that are legal, for tests of what has to carry them.
package wiretest

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

const (
	name    = 63  // octets of a name, CS-ID or label
	csciid  = 127 // octets of a CSCI-ID
	longest = 7 * 24 * time.Hour
)

// Wide gives the i-th text of n octets.
func Wide(i, n int) string {
	s := fmt.Sprint(i, ".")
	return s + strings.Repeat("x", n-len(s))
}

// CSID gives the i-th of the longest CS-IDs.
func CSID(i int) cats.CSID { return cats.CSID(Wide(i, name)) }

// CSCIID gives the i-th of the longest CSCI-IDs.
func CSCIID(i int) cats.CSCIID { return cats.CSCIID(Wide(i, csciid)) }

func metrics() cats.Metrics {
	m := cats.Metrics{
		GAS: math.MaxUint32, InFlight: math.MaxUint32, ComputingTimeMS: 3_600_000, Price: cats.Some[uint32](math.MaxUint32),
		Reputation: cats.Some[uint8](10), SecurityLevel: cats.Some[uint8](10),
		AcceptedTotal: cats.Some[uint64](math.MaxUint64), FinishedTotal: cats.Some[uint64](math.MaxUint64), Extensions: map[string]float64{},
	}
	for i := range v1alpha1.MaxExtensions {
		m.Extensions[Wide(i, name)] = 0.1
	}
	return m
}

// Report is the largest report of the instance CSCIID(0), on the services CSID(0) and so on.
func Report(site string, epoch uint64) cats.SCIReport {
	r := cats.SCIReport{
		CSCIID: CSCIID(0), Site: site, Epoch: epoch, Sequence: math.MaxUint64, Timestamp: time.Unix(1_700_000_000, 0).UTC(), Interval: time.Hour, Full: true,
		Services: make([]cats.ServiceReport, v1alpha1.MaxServices),
	}
	for i := range r.Services {
		r.Services[i] = cats.ServiceReport{
			CSID: CSID(i), Version: Wide(i, name), Health: cats.Healthy, Affinity: Wide(i, name), Metrics: metrics(),
			Healthy: math.MaxUint32, Degraded: math.MaxUint32, Failing: math.MaxUint32, Unknown: math.MaxUint32,
		}
	}
	return r
}

// MetricUpdate is the largest update of a C-SMA, and larger than any other message.
func MetricUpdate(source string) cats.MetricUpdate {
	u := cats.MetricUpdate{
		UpdateHeader: cats.UpdateHeader{
			Source: source, Site: Wide(0, name), Epoch: math.MaxUint64, Sequence: math.MaxUint64, Timestamp: time.Unix(1_700_000_000, 0).UTC(),
			Kind: cats.UpdateFull, TTL: 24 * time.Hour,
		},
		Records: make([]cats.Record, v1alpha1.MaxRows),
	}
	for i := range u.Records {
		u.Records[i] = cats.Record{
			CSID: CSID(i), CSCIID: CSCIID(i), Version: Wide(i, name), Health: cats.Healthy, Reporting: cats.ReportingHealthy, Metrics: metrics(),
			ReportEpoch: math.MaxUint64, ReportSequence: math.MaxUint64, Age: longest,
		}
	}
	return u
}

// Steering is the largest batch that still is one message, of copies of a binding that is legal.
func Steering(legal cats.Binding) cats.SteeringBatch {
	const far = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"
	path := cats.Path{Kind: cats.PathSRv6, Generation: math.MaxUint64, DelayUS: math.MaxUint32}
	for range v1alpha1.MaxSegments {
		path.Segments = append(path.Segments, netip.MustParseAddr(far))
	}
	for i := range v1alpha1.MaxNodes {
		path.Nodes = append(path.Nodes, Wide(i, name))
	}
	legal.Path, legal.Reverse.Path = path, path
	b := cats.SteeringBatch{Provision: &cats.Provision{
		Generation: math.MaxUint64, Services: make([]cats.ServiceRule, v1alpha1.MaxRows), Deliveries: make([]cats.Delivery, v1alpha1.MaxRows),
	}}
	for i := range b.Provision.Services {
		address := netip.MustParseAddr(far).As16()
		address[14], address[15] = byte(i>>8), byte(i)
		one := netip.AddrFrom16(address)
		b.Provision.Services[i] = cats.ServiceRule{
			Number: math.MaxUint32, CSID: CSID(i), Prefix: netip.PrefixFrom(one, 128), Protocol: cats.UDP, Port: math.MaxUint16,
		}
		b.Provision.Deliveries[i] = cats.Delivery{
			CSCIID: CSCIID(i), Locator: cats.Locator{Protocol: cats.UDP, Address: netip.AddrPortFrom(one, math.MaxUint16)}, SID: one,
		}
	}
	for i := range v1alpha1.MaxBatch {
		transaction := cats.Transaction{1, 14: byte(i >> 8), 15: byte(i)}
		legal.Transaction = transaction
		b.Removes = append(b.Removes, cats.Remove{Transaction: transaction, Reason: cats.ReasonIdle})
		b.Drains = append(b.Drains, cats.Drain{Transaction: transaction, Reason: cats.ReasonIdle})
		b.Installs = append(b.Installs, cats.Install{Binding: legal})
		b.Refusals = append(b.Refusals, cats.Refuse{Transaction: transaction, Reason: cats.ReasonNoPath, Stage: Wide(i, name), Detail: Wide(i, v1alpha1.MaxDetail)})
	}
	return b
}
