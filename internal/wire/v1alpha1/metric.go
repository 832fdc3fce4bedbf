package v1alpha1

import (
	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

func encodeHeader(h *cats.UpdateHeader) *pb.UpdateHeader {
	return &pb.UpdateHeader{
		Source:      h.Source,
		Site:        h.Site,
		Epoch:       h.Epoch,
		Seq:         h.Sequence,
		TimestampMs: h.Timestamp.UnixMilli(),
		Kind:        enumOut[pb.UpdateKind](h.Kind),
		BaseSeq:     h.Base,
		TtlMs:       milliseconds(h.TTL),
	}
}

func decodeHeader(m *pb.UpdateHeader) (cats.UpdateHeader, error) {
	d := &decoder{}
	h := cats.UpdateHeader{
		Source:    d.name("source", m.GetSource()),
		Site:      d.optionalName("site", m.GetSite()),
		Epoch:     m.GetEpoch(),
		Sequence:  m.GetSeq(),
		Timestamp: d.timestamp("timestamp_ms", m.GetTimestampMs()),
		Kind:      enumIn[cats.UpdateKind](d, "kind", m.GetKind(), pb.UpdateKind_name),
		Base:      m.GetBaseSeq(),
		TTL:       d.atMost("ttl_ms", uint64(m.GetTtlMs()), maxTTL),
	}
	d.positive("epoch", h.Epoch)
	d.positive("seq", h.Sequence)
	if h.Kind != cats.UpdateWithdraw {
		d.positive("ttl_ms", uint64(m.GetTtlMs()))
	}
	return h, d.err
}

// EncodeMetricUpdate gives the message form of u, sealed with auth where its algorithm is set.
func EncodeMetricUpdate(u *cats.MetricUpdate, auth cats.Auth) *pb.MetricUpdate {
	m := &pb.MetricUpdate{
		Header:  encodeHeader(&u.UpdateHeader),
		Records: make([]*pb.MetricRecord, len(u.Records)),
		Auth:    encodeAuth(auth),
	}
	for i := range u.Records {
		r := &u.Records[i]
		m.Records[i] = &pb.MetricRecord{
			CsId:           string(r.CSID),
			CsciId:         string(r.CSCIID),
			Version:        r.Version,
			Health:         EncodeHealth(r.Health),
			ReportingState: EncodeReportingState(r.Reporting),
			Warned:         r.Warned,
			Metrics:        EncodeMetrics(&r.Metrics),
			ReportEpoch:    r.ReportEpoch,
			ReportSeq:      r.ReportSequence,
			AgeMs:          milliseconds(r.Age),
		}
	}
	return m
}

// DecodeMetricUpdate checks the form of an update and gives it with its seal, which the caller verifies before it
// believes anything of the update. Without a seal the algorithm is cats.AuthNone. Values outside their registered range
// are refused: the C-SMA has validated them.
func DecodeMetricUpdate(m *pb.MetricUpdate) (cats.MetricUpdate, cats.Auth, error) {
	d := &decoder{}
	header, err := decodeHeader(m.GetHeader())
	d.nest("header", err)
	auth, err := decodeAuth(m.GetAuth())
	d.nest("auth", err)
	d.most("records", len(m.GetRecords()), MaxRows)
	if header.Kind == cats.UpdateRefresh && len(m.GetRecords()) > 0 {
		d.fail("records", cats.ReasonMalformed, "%d rows under REFRESH, need none", len(m.GetRecords()))
	}
	if d.err != nil {
		return cats.MetricUpdate{}, cats.Auth{}, d.err
	}
	type key struct {
		service  cats.CSID
		instance cats.CSCIID
	}
	seen := make(map[key]bool, len(m.GetRecords()))
	u := cats.MetricUpdate{UpdateHeader: header, Records: make([]cats.Record, len(m.GetRecords()))}
	for i, r := range m.GetRecords() {
		v, err := decodeRecord(r, header.Kind)
		d.nestAt("records", i, err)
		k := key{v.CSID, v.CSCIID}
		if seen[k] {
			d.fail("records", cats.ReasonDuplicate, "(%s, %s) stands twice", v.CSID, v.CSCIID)
		}
		if d.err != nil {
			return cats.MetricUpdate{}, cats.Auth{}, d.err
		}
		seen[k] = true
		u.Records[i] = v
	}
	return u, auth, nil
}

func decodeRecord(m *pb.MetricRecord, kind cats.UpdateKind) (cats.Record, error) {
	d := &decoder{}
	r := cats.Record{
		CSID:           d.csid("cs_id", m.GetCsId()),
		CSCIID:         d.csciid("csci_id", m.GetCsciId()),
		Version:        d.label("version", m.GetVersion()),
		Health:         enumIn[cats.Health](d, "health", m.GetHealth(), pb.Health_name),
		Reporting:      enumIn[cats.ReportingState](d, "reporting_state", m.GetReportingState(), pb.ReportingState_name),
		Warned:         m.GetWarned(),
		ReportEpoch:    m.GetReportEpoch(),
		ReportSequence: m.GetReportSeq(),
		Age:            d.atMost("age_ms", uint64(m.GetAgeMs()), maxAge),
	}
	if d.err != nil || kind == cats.UpdateWithdraw && m.GetMetrics() == nil {
		return r, d.err
	}
	var err error
	if r.Metrics, err = DecodeMetrics(m.GetMetrics()); err != nil {
		return r, err
	}
	if err := r.Metrics.CheckRange(); err != nil {
		d.nest("metrics", err)
	}
	return r, d.err
}

func encodeAuth(a cats.Auth) *pb.Auth {
	if a.Algorithm == cats.AuthNone {
		return nil
	}
	return &pb.Auth{Algorithm: pb.AuthAlgorithm(a.Algorithm), KeyId: a.KeyID, Value: a.Value}
}

func decodeAuth(m *pb.Auth) (cats.Auth, error) {
	if m == nil {
		return cats.Auth{}, nil
	}
	d := &decoder{}
	length := map[pb.AuthAlgorithm]int{
		pb.AuthAlgorithm_AUTH_ALGORITHM_ED25519:     64,
		pb.AuthAlgorithm_AUTH_ALGORITHM_HMAC_SHA256: 32,
	}[m.GetAlgorithm()]
	if length == 0 {
		d.fail("algorithm", cats.ReasonMalformed, "value %d is not an algorithm", m.GetAlgorithm())
	} else if len(m.GetValue()) != length {
		d.fail("value", cats.ReasonMalformed, "%d octets, need %d", len(m.GetValue()), length)
	}
	a := cats.Auth{Algorithm: cats.AuthAlgorithm(m.GetAlgorithm()), KeyID: d.name("key_id", m.GetKeyId()), Value: m.GetValue()}
	return a, d.err
}
