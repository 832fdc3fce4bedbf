package v1alpha1

import (
	"time"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// EncodeReport gives the message form of an SCI report.
func EncodeReport(r *cats.SCIReport) *pb.SciReport {
	m := &pb.SciReport{
		CsciId:      string(r.CSCIID),
		Site:        r.Site,
		Epoch:       r.Epoch,
		Seq:         r.Sequence,
		TimestampMs: r.Timestamp.UnixMilli(),
		IntervalMs:  milliseconds(r.Interval),
		Full:        r.Full,
		Services:    make([]*pb.ServiceReport, len(r.Services)),
	}
	for i := range r.Services {
		s := &r.Services[i]
		m.Services[i] = &pb.ServiceReport{
			CsId:      string(s.CSID),
			Version:   s.Version,
			Health:    EncodeHealth(s.Health),
			Metrics:   EncodeMetrics(&s.Metrics),
			Instances: &pb.InstanceCounts{Healthy: s.Healthy, Degraded: s.Degraded, Unhealthy: s.Failing, Unknown: s.Unknown},
			Affinity:  s.Affinity,
		}
	}
	return m
}

// DecodeReport checks the form of an SCI report. Whether its values, epoch and sequence are acceptable is the C-SMA's
// to say (C-SMA section 4.2).
func DecodeReport(m *pb.SciReport) (cats.SCIReport, error) {
	d := &decoder{}
	r := cats.SCIReport{
		CSCIID:    d.csciid("csci_id", m.GetCsciId()),
		Site:      d.name("site", m.GetSite()),
		Epoch:     m.GetEpoch(),
		Sequence:  m.GetSeq(),
		Timestamp: d.timestamp("timestamp_ms", m.GetTimestampMs()),
		Interval:  d.atMost("interval_ms", uint64(m.GetIntervalMs()), maxInterval),
		Full:      m.GetFull(),
	}
	d.positive("epoch", r.Epoch)
	d.positive("interval_ms", uint64(m.GetIntervalMs()))
	d.most("services", len(m.GetServices()), MaxServices)
	if d.err != nil {
		return cats.SCIReport{}, d.err
	}
	seen := make(map[cats.CSID]bool, len(m.GetServices()))
	r.Services = make([]cats.ServiceReport, len(m.GetServices()))
	for i, s := range m.GetServices() {
		v, err := decodeServiceReport(s)
		d.nestAt("services", i, err)
		if seen[v.CSID] {
			d.fail("services", cats.ReasonDuplicate, "CS-ID %q stands twice", v.CSID)
		}
		if d.err != nil {
			return cats.SCIReport{}, d.err
		}
		seen[v.CSID] = true
		r.Services[i] = v
	}
	return r, nil
}

func decodeServiceReport(m *pb.ServiceReport) (cats.ServiceReport, error) {
	d := &decoder{}
	s := cats.ServiceReport{
		CSID:     d.csid("cs_id", m.GetCsId()),
		Version:  d.label("version", m.GetVersion()),
		Health:   enumIn[cats.Health](d, "health", m.GetHealth(), pb.Health_name),
		Healthy:  m.GetInstances().GetHealthy(),
		Degraded: m.GetInstances().GetDegraded(),
		Failing:  m.GetInstances().GetUnhealthy(),
		Unknown:  m.GetInstances().GetUnknown(),
		Affinity: d.label("affinity", m.GetAffinity()),
	}
	if d.err != nil {
		return s, d.err
	}
	var err error
	s.Metrics, err = DecodeMetrics(m.GetMetrics())
	return s, err
}

// timestamp checks a wall-clock time in ms since the Unix epoch.
func (d *decoder) timestamp(field string, ms int64) time.Time {
	if ms <= 0 || ms > maxTimestamp {
		d.fail(field, cats.ReasonMalformed, "%d, need a time after 1970 and before 2262", ms)
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// maxTimestamp is the last ms that also fits a cats.Instant.
const maxTimestamp = int64(cats.Never) / int64(time.Millisecond)

// EncodeVerdict gives the message form of the C-SMA's answer to a report.
func EncodeVerdict(v cats.ReportVerdict) *pb.ReportVerdict {
	return &pb.ReportVerdict{
		Epoch:    v.Epoch,
		Seq:      v.Sequence,
		Disposal: enumOut[pb.Disposal](v.Disposal),
		Reason:   EncodeReason(v.Reason),
		Detail:   printable(v.Detail, MaxDetail),
	}
}

// DecodeVerdict checks the C-SMA's answer to a report.
func DecodeVerdict(m *pb.ReportVerdict) (cats.ReportVerdict, error) {
	d := &decoder{}
	v := cats.ReportVerdict{
		Epoch:    m.GetEpoch(),
		Sequence: m.GetSeq(),
		Disposal: enumIn[cats.Disposal](d, "disposal", m.GetDisposal(), pb.Disposal_name),
		Reason:   d.reason("reason", m.GetReason()),
		Detail:   d.detail(m.GetDetail()),
	}
	if d.err != nil {
		return cats.ReportVerdict{}, d.err
	}
	return v, nil
}
