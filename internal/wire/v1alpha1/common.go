package v1alpha1

import (
	"maps"
	"math"
	"net/netip"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// EncodeReason gives the message form of r.
func EncodeReason(r cats.Reason) pb.Reason { return pb.Reason(r) }

// DecodeReason checks that r is in the closed list; REASON_UNSPECIFIED is cats.ReasonNone.
func DecodeReason(r pb.Reason) (cats.Reason, error) {
	d := &decoder{}
	v := d.reason("reason", r)
	return v, d.err
}

func (d *decoder) reason(field string, r pb.Reason) cats.Reason {
	if r < 0 || int(r) >= len(pb.Reason_name) {
		d.fail(field, cats.ReasonMalformed, "value %d is not in the closed list", r)
		return cats.ReasonNone
	}
	return cats.Reason(r)
}

// EncodeHealth gives the message form of h.
func EncodeHealth(h cats.Health) pb.Health { return enumOut[pb.Health](h) }

// EncodeReportingState gives the message form of s.
func EncodeReportingState(s cats.ReportingState) pb.ReportingState {
	return enumOut[pb.ReportingState](s)
}

// EncodeValidity gives the message form of v.
func EncodeValidity(v cats.Validity) pb.Validity { return enumOut[pb.Validity](v) }

// EncodeFlowState gives the message form of s.
func EncodeFlowState(s cats.FlowState) pb.FlowState { return enumOut[pb.FlowState](s) }

// EncodeEpoch gives the message form of e.
func EncodeEpoch(e cats.Epoch) *pb.Epoch { return &pb.Epoch{Term: e.Term, Counter: e.Counter} }

func (d *decoder) epoch(field string, e *pb.Epoch) cats.Epoch {
	if e == nil {
		d.fail(field, cats.ReasonMalformed, "missing")
	}
	return cats.Epoch{Term: e.GetTerm(), Counter: e.GetCounter()}
}

// EncodeEndpoint gives the message form of a; nil for the zero AddrPort.
func EncodeEndpoint(a netip.AddrPort) *pb.Endpoint {
	if !a.IsValid() {
		return nil
	}
	return &pb.Endpoint{Address: octets(a.Addr()), Port: uint32(a.Port())}
}

// DecodeEndpoint checks e: a unicast address and a port.
func DecodeEndpoint(e *pb.Endpoint) (netip.AddrPort, error) {
	d := &decoder{}
	a := netip.AddrPortFrom(d.address("address", e.GetAddress()), d.port("port", e.GetPort()))
	if d.err != nil {
		return netip.AddrPort{}, d.err
	}
	return a, nil
}

// EncodePrefix gives the message form of p.
func EncodePrefix(p netip.Prefix) *pb.Prefix {
	if !p.IsValid() {
		return nil
	}
	return &pb.Prefix{Address: octets(p.Addr()), Bits: uint32(p.Bits())}
}

// DecodePrefix checks p: an address of either family, bits within it, no bit set beyond them.
func DecodePrefix(p *pb.Prefix) (netip.Prefix, error) {
	d := &decoder{}
	a, ok := netip.AddrFromSlice(p.GetAddress())
	switch {
	case !ok:
		d.fail("address", cats.ReasonMalformed, "%d octets, need 4 or 16", len(p.GetAddress()))
	case a.Is4In6():
		d.fail("address", cats.ReasonMalformed, "%s is an IPv4-mapped IPv6 address", a)
	case p.GetBits() > uint32(a.BitLen()):
		d.fail("bits", cats.ReasonMalformed, "%d, at most %d", p.GetBits(), a.BitLen())
	case netip.PrefixFrom(a, int(p.GetBits())).Masked().Addr() != a:
		d.fail("address", cats.ReasonMalformed, "%s has bits set beyond /%d", a, p.GetBits())
	}
	if d.err != nil {
		return netip.Prefix{}, d.err
	}
	return netip.PrefixFrom(a, int(p.GetBits())), nil
}

// EncodeTuple gives the message form of t.
func EncodeTuple(t cats.Tuple) *pb.Tuple {
	return &pb.Tuple{Protocol: uint32(t.Protocol), Source: EncodeEndpoint(t.Source), Target: EncodeEndpoint(t.Target)}
}

// DecodeTuple checks t: a transport protocol, and two endpoints of one family.
func DecodeTuple(t *pb.Tuple) (cats.Tuple, error) {
	d := &decoder{}
	v := cats.Tuple{Protocol: d.protocol("protocol", t.GetProtocol())}
	var err error
	v.Source, err = DecodeEndpoint(t.GetSource())
	d.nest("source", err)
	v.Target, err = DecodeEndpoint(t.GetTarget())
	d.nest("target", err)
	if v.Source.Addr().BitLen() != v.Target.Addr().BitLen() {
		d.fail("target", cats.ReasonMalformed, "%s and source %s are of two families", v.Target, v.Source)
	}
	if d.err != nil {
		return cats.Tuple{}, d.err
	}
	return v, nil
}

// EncodeFlowKey gives the message form of k.
func EncodeFlowKey(k cats.FlowKey) *pb.FlowKey {
	return &pb.FlowKey{Attachment: k.Attachment, Tenant: k.Tenant, Tuple: EncodeTuple(k.Tuple)}
}

// DecodeFlowKey checks k.
func DecodeFlowKey(k *pb.FlowKey) (cats.FlowKey, error) {
	d := &decoder{}
	v := cats.FlowKey{Attachment: d.name("attachment", k.GetAttachment()), Tenant: d.name("tenant", k.GetTenant())}
	var err error
	v.Tuple, err = DecodeTuple(k.GetTuple())
	d.nest("tuple", err)
	if d.err != nil {
		return cats.FlowKey{}, d.err
	}
	return v, nil
}

// EncodeLocator gives the message form of l.
func EncodeLocator(l cats.Locator) *pb.Locator {
	return &pb.Locator{Protocol: uint32(l.Protocol), Address: octets(l.Address.Addr()), Port: uint32(l.Address.Port())}
}

// DecodeLocator checks l: a transport protocol, a unicast address, a port.
func DecodeLocator(l *pb.Locator) (cats.Locator, error) {
	d := &decoder{}
	v := cats.Locator{
		Protocol: d.protocol("protocol", l.GetProtocol()),
		Address:  netip.AddrPortFrom(d.address("address", l.GetAddress()), d.port("port", l.GetPort())),
	}
	if d.err != nil {
		return cats.Locator{}, d.err
	}
	return v, nil
}

// EncodeConstraints gives the message form of c.
func EncodeConstraints(c cats.Constraints) *pb.Constraints {
	return &pb.Constraints{Hard: encodeBounds(c.Hard), Preferences: encodeBounds(c.Preferences)}
}

func encodeBounds(b cats.Bounds) *pb.Bounds {
	if b == (cats.Bounds{}) {
		return nil
	}
	return &pb.Bounds{
		MaxDelayUs:         optionalOut(b.MaxDelayUS),
		MaxJitterUs:        optionalOut(b.MaxJitterUS),
		MinBandwidthKbps:   optionalOut(b.MinBandwidthKbps),
		MaxLossPpm:         optionalOut(b.MaxLossPPM),
		MaxRealDelayUs:     optionalOut(b.MaxRealDelayUS),
		MinSlots:           optionalOut(b.MinSlots),
		MaxComputingTimeMs: optionalOut(b.MaxComputingTimeMS),
		MaxPrice:           optionalOut(b.MaxPrice),
		MinSecurity:        optionalUint32(b.MinSecurity),
		MinReputation:      optionalUint32(b.MinReputation),
		TargetPrice:        optionalOut(b.TargetPrice),
	}
}

// DecodeConstraints checks c. A wanted price is a preference; as a hard bound it is refused.
func DecodeConstraints(c *pb.Constraints) (cats.Constraints, error) {
	d := &decoder{}
	hard, err := decodeBounds(c.GetHard())
	d.nest("hard", err)
	if hard.TargetPrice.Present {
		d.fail("hard.target_price", cats.ReasonMalformed, "can only be a preference")
	}
	preferences, err := decodeBounds(c.GetPreferences())
	d.nest("preferences", err)
	if d.err != nil {
		return cats.Constraints{}, d.err
	}
	return cats.Constraints{Hard: hard, Preferences: preferences}, nil
}

func decodeBounds(b *pb.Bounds) (cats.Bounds, error) {
	if b == nil {
		return cats.Bounds{}, nil
	}
	d := &decoder{}
	v := cats.Bounds{
		MaxDelayUS:         optionalIn(b.MaxDelayUs),
		MaxJitterUS:        optionalIn(b.MaxJitterUs),
		MinBandwidthKbps:   optionalIn(b.MinBandwidthKbps),
		MaxLossPPM:         optionalIn(b.MaxLossPpm),
		MaxRealDelayUS:     optionalIn(b.MaxRealDelayUs),
		MinSlots:           optionalIn(b.MinSlots),
		MaxComputingTimeMS: optionalIn(b.MaxComputingTimeMs),
		MaxPrice:           optionalIn(b.MaxPrice),
		MinSecurity:        d.optionalUint8("min_security", b.MinSecurity, math.MaxUint8, cats.ReasonMalformed),
		MinReputation:      d.optionalUint8("min_reputation", b.MinReputation, math.MaxUint8, cats.ReasonMalformed),
		TargetPrice:        optionalIn(b.TargetPrice),
	}
	return v, d.err
}

// EncodeMetrics gives the message form of m.
func EncodeMetrics(m *cats.Metrics) *pb.Metrics {
	return &pb.Metrics{
		Gas:             m.GAS,
		InFlight:        m.InFlight,
		ComputingTimeMs: m.ComputingTimeMS,
		Price:           optionalOut(m.Price),
		Reputation:      optionalUint32(m.Reputation),
		SecurityLevel:   optionalUint32(m.SecurityLevel),
		Extensions:      maps.Clone(m.Extensions),
		AcceptedTotal:   optionalOut(m.AcceptedTotal),
		FinishedTotal:   optionalOut(m.FinishedTotal),
	}
}

// DecodeMetrics checks the form of m. Registered ranges are left to cats.Metrics.CheckRange, because what follows from a
// value out of range is the receiver's policy (C-SMA section 4.2); only what cannot be represented is refused here.
func DecodeMetrics(m *pb.Metrics) (cats.Metrics, error) {
	d := &decoder{}
	if m == nil {
		d.fail("metrics", cats.ReasonMalformed, "missing")
		return cats.Metrics{}, d.err
	}
	v := cats.Metrics{
		GAS:             m.Gas,
		InFlight:        m.InFlight,
		ComputingTimeMS: m.ComputingTimeMs,
		Price:           optionalIn(m.Price),
		Reputation:      d.optionalUint8("metrics.reputation", m.Reputation, math.MaxUint8, cats.ReasonRange),
		SecurityLevel:   d.optionalUint8("metrics.security_level", m.SecurityLevel, math.MaxUint8, cats.ReasonRange),
		AcceptedTotal:   optionalIn(m.AcceptedTotal),
		FinishedTotal:   optionalIn(m.FinishedTotal),
	}
	d.most("metrics.extensions", len(m.Extensions), MaxExtensions)
	if len(m.Extensions) > 0 && d.err == nil {
		v.Extensions = m.Extensions
		for name := range m.Extensions {
			d.name("metrics.extensions", name)
		}
	}
	if d.err != nil {
		return cats.Metrics{}, d.err
	}
	return v, nil
}

// EncodePathMetrics gives the message form of m.
func EncodePathMetrics(m cats.PathMetrics) *pb.PathMetrics {
	return &pb.PathMetrics{
		DelayUs:       m.DelayUS,
		JitterUs:      m.JitterUS,
		LossPpm:       m.LossPPM,
		BandwidthKbps: m.BandwidthKbps,
		TeMetric:      m.TEMetric,
		Hops:          uint32(m.Hops),
	}
}

// DecodePathMetrics checks m; an absent message is all zero.
func DecodePathMetrics(m *pb.PathMetrics) (cats.PathMetrics, error) {
	d := &decoder{}
	v := cats.PathMetrics{
		DelayUS:       m.GetDelayUs(),
		JitterUS:      m.GetJitterUs(),
		LossPPM:       d.loss("loss_ppm", m.GetLossPpm()),
		BandwidthKbps: m.GetBandwidthKbps(),
		TEMetric:      m.GetTeMetric(),
		Hops:          d.uint8("hops", m.GetHops()),
	}
	if d.err != nil {
		return cats.PathMetrics{}, d.err
	}
	return v, nil
}

// EncodeUsage gives the message form of u.
func EncodeUsage(u cats.Usage) *pb.Usage { return &pb.Usage{Packets: u.Packets, Octets: u.Octets} }

func decodeUsage(u *pb.Usage) cats.Usage {
	return cats.Usage{Packets: u.GetPackets(), Octets: u.GetOctets()}
}

// encapsulations lists the bits of cats.Encapsulation in the order of the message's enumeration.
var encapsulations = []cats.Encapsulation{
	cats.EncapNone, cats.EncapSRv6, cats.EncapIPIP, cats.EncapVXLAN, cats.EncapSRMPLS,
}

// EncodeEncapsulation gives the message form of one encapsulation.
func EncodeEncapsulation(e cats.Encapsulation) pb.Encapsulation {
	for i, bit := range encapsulations {
		if e == bit {
			return pb.Encapsulation(i + 1)
		}
	}
	return pb.Encapsulation_ENCAPSULATION_UNSPECIFIED
}

// EncodeCapabilities gives the message form of c.
func EncodeCapabilities(c cats.Capabilities) *pb.Capabilities {
	m := &pb.Capabilities{MaxSegments: uint32(c.MaxSegments)}
	for i, bit := range encapsulations {
		if c.Encapsulations&bit != 0 {
			m.Encapsulations = append(m.Encapsulations, pb.Encapsulation(i+1))
		}
	}
	return m
}

// DecodeCapabilities checks c. An encapsulation that is not known here is left out: a newer forwarder may have more.
func DecodeCapabilities(c *pb.Capabilities) (cats.Capabilities, error) {
	d := &decoder{}
	if c == nil {
		d.fail("capabilities", cats.ReasonMalformed, "missing")
	}
	v := cats.Capabilities{MaxSegments: uint8(c.GetMaxSegments())}
	if c.GetMaxSegments() > MaxSegments {
		d.fail("capabilities.max_segments", cats.ReasonMalformed, "%d, at most %d", c.GetMaxSegments(), MaxSegments)
	}
	d.most("capabilities.encapsulations", len(c.GetEncapsulations()), MaxBatch)
	for _, e := range c.GetEncapsulations() {
		if e < 1 {
			d.fail("capabilities.encapsulations", cats.ReasonMalformed, "value %d, need 1 or more", e)
		} else if int(e) <= len(encapsulations) {
			v.Encapsulations |= encapsulations[e-1]
		}
	}
	if d.err != nil {
		return cats.Capabilities{}, d.err
	}
	return v, nil
}
