package selection

import (
	"fmt"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// filter gives the first stage that removes a candidate.
func filter(r *Request, c *Candidate) Stage {
	if stage := InstanceStage(r, c); stage != StageNone {
		return stage
	}
	hard := &r.Constraints.Hard
	switch {
	case c.Path == nil || c.PathValidity != cats.Valid || !c.Path.Reachable:
		return StagePath
	case brokenNetwork(hard, c) != "":
		return StageNetwork
	case hard.MaxRealDelayUS.Present && c.RealDelayUS() > uint64(hard.MaxRealDelayUS.Value):
		return StageRealDelay
	}
	return StageNone
}

// InstanceStage gives the first stage before the join with the NST that removes a candidate, or StageNone.
func InstanceStage(r *Request, c *Candidate) Stage {
	switch {
	case !c.Authorized || !slices.Contains(r.Service.Tenants, r.Key.Tenant):
		return StageAuthorization
	case !rightVersion(r.Service, c):
		return StageVersion
	case c.Deployment.State != catalogue.Validated || !c.Acknowledged || !c.Encapsulation || !sameFamily(r, c):
		return StageDeployment
	case !c.Connected || c.CommitFailed:
		return StageEgress
	case c.Report == nil || c.Validity != cats.Valid:
		return StageFreshness
	case c.Report.Health != cats.Healthy && c.Report.Health != cats.Degraded:
		return StageHealth
	case c.Effective < r.Slots():
		return StageSlots
	case brokenComputing(&r.Constraints.Hard, c) != "":
		return StageComputing
	}
	return StageNone
}

func rightVersion(s *catalogue.ServiceRecord, c *Candidate) bool {
	return s.State == catalogue.Published && c.Deployment.Version == s.Version &&
		(c.Report == nil || c.Report.Version == s.Version)
}

// sameFamily: a forwarder rewrites the destination, and never translates between families or protocols.
func sameFamily(r *Request, c *Candidate) bool {
	l := c.Deployment.Locator
	return l.Protocol == r.Key.Tuple.Protocol && l.Address.Addr().Is4() == r.Key.Tuple.Target.Addr().Is4()
}

// brokenComputing names the hard computing bound that a candidate with a report breaks; an absent value breaks one.
func brokenComputing(b *cats.Bounds, c *Candidate) string {
	m := &c.Report.Metrics
	switch {
	case b.MaxComputingTimeMS.Present && m.ComputingTimeMS > b.MaxComputingTimeMS.Value:
		return fmt.Sprintf("computing time %d ms is above %d ms", m.ComputingTimeMS, b.MaxComputingTimeMS.Value)
	case b.MaxPrice.Present && !(m.Price.Present && m.Price.Value <= b.MaxPrice.Value):
		return fmt.Sprintf("price %s is not known to be at most %d", optional(m.Price), b.MaxPrice.Value)
	case b.MinSecurity.Present && !(m.SecurityLevel.Present && m.SecurityLevel.Value >= b.MinSecurity.Value):
		return fmt.Sprintf("security level %s is not known to be at least %d", optional(m.SecurityLevel), b.MinSecurity.Value)
	case b.MinReputation.Present && !(m.Reputation.Present && m.Reputation.Value >= b.MinReputation.Value):
		return fmt.Sprintf("reputation %s is not known to be at least %d", optional(m.Reputation), b.MinReputation.Value)
	}
	return ""
}

func optional[T any](v cats.Optional[T]) string {
	if !v.Present {
		return "(absent)"
	}
	return fmt.Sprint(v.Value)
}

// brokenNetwork names the hard network bound that a candidate with a path breaks.
func brokenNetwork(b *cats.Bounds, c *Candidate) string { return BrokenPath(b, &c.Path.Metrics) }

// BrokenPath names the hard network bound that the metrics of a path break; empty: none.
func BrokenPath(b *cats.Bounds, m *cats.PathMetrics) string {
	switch {
	case b.MaxDelayUS.Present && m.DelayUS > b.MaxDelayUS.Value:
		return fmt.Sprintf("network delay %d µs is above %d µs", m.DelayUS, b.MaxDelayUS.Value)
	case b.MaxJitterUS.Present && m.JitterUS > b.MaxJitterUS.Value:
		return fmt.Sprintf("jitter %d µs is above %d µs", m.JitterUS, b.MaxJitterUS.Value)
	case b.MinBandwidthKbps.Present && m.BandwidthKbps < b.MinBandwidthKbps.Value:
		return fmt.Sprintf("available bandwidth %d kbit/s is below %d kbit/s", m.BandwidthKbps, b.MinBandwidthKbps.Value)
	case b.MaxLossPPM.Present && m.LossPPM > b.MaxLossPPM.Value:
		return fmt.Sprintf("loss %d ppm is above %d ppm", m.LossPPM, b.MaxLossPPM.Value)
	}
	return ""
}

// Why tells a person what failed a candidate at the stage that removed it; empty where none did.
func Why(r *Request, c *Candidate, stage Stage) string {
	switch stage {
	case StageAuthorization:
		if !c.Authorized {
			return fmt.Sprintf("%s may not report on it", c.Report.Source)
		}
		return fmt.Sprintf("tenant %s may not use %s", r.Key.Tenant, r.Service.CSID)
	case StageVersion:
		return whyVersion(r, c)
	case StageDeployment:
		return whyDeployment(r, c)
	case StageEgress:
		if !c.Connected {
			return fmt.Sprintf("egress %s has no session", c.Egress.Forwarder)
		}
		return fmt.Sprintf("the last commit at egress %s failed a moment ago", c.Egress.Forwarder)
	case StageFreshness:
		if c.Report == nil {
			return "nothing was reported"
		}
		return fmt.Sprintf("the report is %s", c.Validity)
	case StageHealth:
		return fmt.Sprintf("health is %s", c.Report.Health)
	case StageSlots:
		return fmt.Sprintf("%d slots left of %d, %d needed", c.Effective, c.Report.Metrics.GAS, r.Slots())
	case StageComputing:
		return brokenComputing(&r.Constraints.Hard, c)
	case StagePath:
		return whyPath(c)
	case StageNetwork:
		return brokenNetwork(&r.Constraints.Hard, c)
	case StageRealDelay:
		return fmt.Sprintf("real delay %d µs is above %d µs", c.RealDelayUS(), r.Constraints.Hard.MaxRealDelayUS.Value)
	}
	return ""
}

func whyVersion(r *Request, c *Candidate) string {
	switch {
	case r.Service.State != catalogue.Published:
		return fmt.Sprintf("service %s is %s", r.Service.CSID, r.Service.State)
	case c.Deployment.Version != r.Service.Version:
		return fmt.Sprintf("version %s is deployed, %s is published", c.Deployment.Version, r.Service.Version)
	}
	return fmt.Sprintf("version %s is reported, %s is published", c.Report.Version, r.Service.Version)
}

func whyDeployment(r *Request, c *Candidate) string {
	switch {
	case c.Deployment.State != catalogue.Validated:
		return fmt.Sprintf("deployment is %s", c.Deployment.State)
	case c.Egress.Forwarder == "":
		return "it has no egress attachment"
	case !c.Acknowledged:
		return fmt.Sprintf("egress %s has not acknowledged its delivery rule", c.Egress.Forwarder)
	case !c.Encapsulation:
		return fmt.Sprintf("ingress and egress %s have no encapsulation in common", c.Egress.Forwarder)
	}
	return fmt.Sprintf("locator %s does not fit %s", c.Deployment.Locator, r.Key.Tuple)
}

func whyPath(c *Candidate) string {
	switch {
	case c.Path == nil:
		return fmt.Sprintf("no path to egress %s is known", c.Egress.Forwarder)
	case c.PathValidity != cats.Valid:
		return fmt.Sprintf("the path to egress %s is %s", c.Egress.Forwarder, c.PathValidity)
	}
	return fmt.Sprintf("egress %s cannot be reached", c.Egress.Forwarder)
}
