package v1alpha1

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
)

// enumerations gives the number of values of each enumeration of cats that messages carry.
var enumerations = map[reflect.Type]int{
	reflect.TypeFor[cats.Health]():         4,
	reflect.TypeFor[cats.ReportingState](): 4,
	reflect.TypeFor[cats.UpdateKind]():     4,
	reflect.TypeFor[cats.Disposition]():    2,
	reflect.TypeFor[cats.PathKind]():       4,
	reflect.TypeFor[cats.PathStatus]():     2,
	reflect.TypeFor[cats.Disjointness]():   3,
	reflect.TypeFor[cats.BindingResult]():  5,
	reflect.TypeFor[cats.Half]():           2,
	reflect.TypeFor[cats.FlowState]():      8,
	reflect.TypeFor[cats.FeedbackKind]():   6,
	reflect.TypeFor[cats.Disposal]():       3,
	reflect.TypeFor[cats.Reason]():         len(cats.Reasons()) + 1,
}

// arbitrary gives a valid value of T. It fills every field that T has by reflection, and then makes valid what depends on
// other fields, so that a field that is added to T without a conversion fails the round trip.
func arbitrary[T any](t *rapid.T) T {
	var v T
	fill(t, reflect.ValueOf(&v).Elem())
	return v
}

func fill(t *rapid.T, v reflect.Value) {
	if n, ok := enumerations[v.Type()]; ok {
		v.SetUint(uint64(rapid.IntRange(0, n-1).Draw(t, v.Type().Name())))
		return
	}
	if special(t, v) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		fillStruct(t, v)
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "present") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Slice:
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			e := reflect.New(v.Type().Elem()).Elem()
			fill(t, e)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, k)
			fill(t, e)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		v.SetString(rapid.StringMatching(`[A-Za-z0-9]{1,20}`).Draw(t, "token"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(-1e300, 1e300).Draw(t, "float"))
	case reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Uint8().Draw(t, "octet")))
	case reflect.Uint16:
		v.SetUint(uint64(rapid.Uint16().Draw(t, "short")))
	case reflect.Uint32:
		v.SetUint(uint64(rapid.Uint32().Draw(t, "number")))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "long"))
	default:
		panic(fmt.Sprintf("no generator for %s", v.Type()))
	}
}

// fillStruct fills every field; an optional value that is absent stays zero.
func fillStruct(t *rapid.T, v reflect.Value) {
	present := v.FieldByName("Present")
	if present.IsValid() && v.NumField() == 2 {
		if fill(t, present); !present.Bool() {
			return
		}
		fill(t, v.FieldByName("Value"))
		return
	}
	for i := range v.NumField() {
		fill(t, v.Field(i))
	}
	amend(t, v.Addr().Interface())
}

// special fills what is not free in its bits.
func special(t *rapid.T, v reflect.Value) bool {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		*p = time.Duration(rapid.IntRange(1, 3_600_000).Draw(t, "ms")) * time.Millisecond
	case *time.Time:
		*p = time.UnixMilli(rapid.Int64Range(1, maxTimestamp).Draw(t, "time")).UTC()
	case *netip.Addr:
		*p = address(t, true)
	case *netip.AddrPort:
		*p = endpoint(t, rapid.Bool().Draw(t, "ipv6"))
	case *netip.Prefix:
		a := address(t, rapid.Bool().Draw(t, "ipv6"))
		*p = netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits")).Masked()
	case *cats.Protocol:
		*p = rapid.SampledFrom([]cats.Protocol{cats.TCP, cats.UDP}).Draw(t, "protocol")
	case *cats.Tuple:
		v6 := rapid.Bool().Draw(t, "ipv6")
		*p = cats.Tuple{
			Protocol: rapid.SampledFrom([]cats.Protocol{cats.TCP, cats.UDP}).Draw(t, "protocol"),
			Source:   endpoint(t, v6), Target: endpoint(t, v6),
		}
	case *cats.Encapsulation:
		*p = cats.Encapsulation(rapid.IntRange(0, 31).Draw(t, "set"))
	default:
		return false
	}
	return true
}

func address(t *rapid.T, v6 bool) netip.Addr {
	if v6 {
		b := [16]byte{0x20, 0x01}
		copy(b[2:], rapid.SliceOfN(rapid.Byte(), 14, 14).Draw(t, "address"))
		return netip.AddrFrom16(b)
	}
	b := [4]byte{198}
	copy(b[1:], rapid.SliceOfN(rapid.Byte(), 3, 3).Draw(t, "address"))
	return netip.AddrFrom4(b)
}

func endpoint(t *rapid.T, v6 bool) netip.AddrPort {
	return netip.AddrPortFrom(address(t, v6), rapid.Uint16Range(1, 65535).Draw(t, "port"))
}

// sent is when path requests of the tests are sent and received.
const sent = cats.Instant(1_700_000_000_000_000_000)

// amend makes a filled value valid where a field depends on another one.
func amend(t *rapid.T, v any) {
	switch v := v.(type) {
	case *cats.Metrics:
		v.Reputation.Value %= cats.MaxReputation + 1
		v.SecurityLevel.Value %= cats.MaxSecurityLevel + 1
		v.ComputingTimeMS %= cats.MaxComputingTimeMS + 1
	case *cats.PathMetrics:
		v.LossPPM %= maxPPM + 1
	case *cats.Constraints:
		v.Hard.TargetPrice = cats.Optional[uint32]{}
	case *cats.Capabilities:
		v.MaxSegments %= MaxSegments + 1
	case *cats.UpdateHeader:
		v.Epoch, v.Sequence = max(v.Epoch, 1), max(v.Sequence, 1)
	case *cats.SCIReport:
		v.Epoch = max(v.Epoch, 1)
		for i := range v.Services {
			v.Services[i].CSID += cats.CSID(fmt.Sprintf(".%d", i))
		}
	case *cats.MetricUpdate:
		if v.Kind == cats.UpdateRefresh {
			v.Records = nil
		}
		for i := range v.Records {
			v.Records[i].CSCIID += cats.CSCIID(fmt.Sprintf(":%d", i))
		}
	case *cats.NetworkUpdate:
		if v.Kind == cats.UpdateRefresh {
			v.Nodes, v.Links, v.Paths = nil, nil, nil
		}
		for i := range v.Nodes {
			v.Nodes[i].Name += fmt.Sprintf("-%d", i)
		}
		for i := range v.Links {
			v.Links[i].To += fmt.Sprintf("-%d", i)
		}
		for i := range v.Paths {
			v.Paths[i].Egress += fmt.Sprintf("-%d", i)
		}
	case *cats.Link:
		v.LossPPM %= maxPPM + 1
	case *cats.Path:
		v.Segments, v.Labels, v.Handle = form(t, v.Kind)
	case *cats.PathReply:
		amendReply(t, v)
	case *cats.PathRequest:
		v.Bounds = cats.Bounds{
			MaxDelayUS: v.Bounds.MaxDelayUS, MaxJitterUS: v.Bounds.MaxJitterUS,
			MinBandwidthKbps: v.Bounds.MinBandwidthKbps, MaxLossPPM: v.Bounds.MaxLossPPM,
		}
		v.Deadline = sent.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "deadline")) * time.Millisecond)
		if v.Disjointness == cats.DisjointNone {
			v.DisjointFrom = cats.Transaction{}
		} else {
			v.DisjointFrom[0] |= 1
		}
	case *cats.Binding:
		v.Version, v.ServiceNumber = max(v.Version, 1), max(v.ServiceNumber, 1)
		v.Locator.Protocol = v.Match.Tuple.Protocol
		v.Locator.Address = endpoint(t, v.Match.Tuple.Source.Addr().Is6())
		v.Reverse.Service = cats.Tuple{Protocol: v.Locator.Protocol, Source: v.Locator.Address, Target: v.Match.Tuple.Source}
		v.Reverse.Client = v.Match.Tuple.Reverse()
		v.Reverse.Restore = v.Match.Tuple.Target
	case *cats.ServiceRule:
		v.Number, v.Port = max(v.Number, 1), max(v.Port, 1)
	case *cats.Refuse:
		v.Reason = max(v.Reason, cats.ReasonMalformed)
	case *cats.ForwarderHello:
		amendAttachments(v.Attachments)
		for i := range v.Highest {
			v.Highest[i].Shard = v.Highest[i].Shard&^3 + cats.Shard(i)
		}
	case *cats.ForwarderBatch:
		amendAttachments(v.Attachments)
	case *cats.HeldBinding:
		v.State = cats.Active + v.State%2 // or DRAINING
	case *cats.Feedback:
		amendFeedback(v)
	}
	amendTransaction(v)
}

// amendAttachments makes names and prefixes differ.
func amendAttachments(all []cats.ClientAttachment) {
	for i := range all {
		all[i].Name += fmt.Sprintf("-%d", i)
		slices.SortFunc(all[i].Prefixes, netip.Prefix.Compare)
		all[i].Prefixes = slices.Compact(all[i].Prefixes)
	}
}

// amendTransaction keeps a transaction from being all zero, wherever it stands.
func amendTransaction(v any) {
	f := reflect.ValueOf(v).Elem().FieldByName("Transaction")
	if f.IsValid() && f.Type() == reflect.TypeFor[cats.Transaction]() {
		f.Index(0).SetUint(f.Index(0).Uint() | 1)
	}
}

func form(t *rapid.T, kind cats.PathKind) (segments []netip.Addr, labels []uint32, handle string) {
	n := rapid.IntRange(1, MaxSegments).Draw(t, "depth")
	switch kind {
	case cats.PathSRv6:
		for range n {
			segments = append(segments, address(t, true))
		}
	case cats.PathSRMPLS:
		for range n {
			labels = append(labels, rapid.Uint32Range(minLabel, maxLabel).Draw(t, "label"))
		}
	default:
		handle = rapid.StringMatching(`[ -~]{1,255}`).Draw(t, "handle")
	}
	return segments, labels, handle
}

func amendReply(t *rapid.T, v *cats.PathReply) {
	if v.Status == cats.PathFound {
		v.Segments, v.Labels, v.Handle = form(t, v.Kind)
		return
	}
	v.Kind, v.Segments, v.Labels, v.Handle, v.Nodes, v.Metrics = 0, nil, nil, "", nil, cats.PathMetrics{}
	v.Reason = max(v.Reason, cats.ReasonMalformed)
}

// amendFeedback keeps of f what its kind carries.
func amendFeedback(f *cats.Feedback) {
	k := cats.Feedback{Kind: f.Kind}
	switch f.Kind {
	case cats.FeedbackHello:
		k.Epoch, k.Sequence = f.Epoch, f.Sequence
	case cats.FeedbackApplied:
		k.Epoch, k.Sequence, k.RowRefusals = f.Epoch, f.Sequence, f.RowRefusals
	case cats.FeedbackRefused:
		k.Epoch, k.Sequence, k.Reason, k.Detail = f.Epoch, f.Sequence, f.Reason, f.Detail
	case cats.FeedbackNeedFull:
		k.Epoch, k.Sequence, k.Detail = f.Epoch, f.Sequence, f.Detail
	case cats.FeedbackQuery:
		k.CSIDs = f.CSIDs
	case cats.FeedbackPolicy:
		k.Policy = f.Policy
	}
	*f = k
}
