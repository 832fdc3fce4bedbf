package v1alpha1

import (
	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// EncodeFeedback gives the message form of what the C-PS says to a source.
func EncodeFeedback(f *cats.Feedback) *pb.Feedback {
	m := &pb.Feedback{}
	switch f.Kind {
	case cats.FeedbackHello:
		m.Message = &pb.Feedback_Hello{Hello: &pb.SourceHello{Epoch: f.Epoch, LastSeq: f.Sequence}}
	case cats.FeedbackApplied:
		applied := &pb.Applied{Epoch: f.Epoch, Seq: f.Sequence}
		for _, r := range f.RowRefusals {
			applied.Refusals = append(applied.Refusals, &pb.RowRefusal{
				CsId: string(r.CSID), CsciId: string(r.CSCIID), Reason: EncodeReason(r.Reason),
			})
		}
		m.Message = &pb.Feedback_Applied{Applied: applied}
	case cats.FeedbackRefused:
		m.Message = &pb.Feedback_Refused{Refused: &pb.Refused{
			Epoch: f.Epoch, Seq: f.Sequence, Reason: EncodeReason(f.Reason), Detail: printable(f.Detail, MaxDetail),
		}}
	case cats.FeedbackNeedFull:
		m.Message = &pb.Feedback_NeedFull{NeedFull: &pb.NeedFull{
			Epoch: f.Epoch, LastSeq: f.Sequence, Detail: printable(f.Detail, MaxDetail),
		}}
	case cats.FeedbackQuery:
		query := &pb.Query{}
		for _, id := range f.CSIDs {
			query.CsIds = append(query.CsIds, string(id))
		}
		m.Message = &pb.Feedback_Query{Query: query}
	case cats.FeedbackPolicy:
		m.Message = &pb.Feedback_PolicyUpdate{PolicyUpdate: &pb.PolicyUpdate{
			Generation: f.Policy.Generation, Document: f.Policy.Document,
		}}
	}
	return m
}

// DecodeFeedback checks what the C-PS says to a source.
func DecodeFeedback(m *pb.Feedback) (cats.Feedback, error) {
	d := &decoder{}
	var f cats.Feedback
	switch x := m.GetMessage().(type) {
	case *pb.Feedback_Hello:
		f = cats.Feedback{Kind: cats.FeedbackHello, Epoch: x.Hello.GetEpoch(), Sequence: x.Hello.GetLastSeq()}
	case *pb.Feedback_Applied:
		f = cats.Feedback{Kind: cats.FeedbackApplied, Epoch: x.Applied.GetEpoch(), Sequence: x.Applied.GetSeq()}
		f.RowRefusals = d.rowRefusals(x.Applied.GetRefusals())
	case *pb.Feedback_Refused:
		f = cats.Feedback{
			Kind: cats.FeedbackRefused, Epoch: x.Refused.GetEpoch(), Sequence: x.Refused.GetSeq(),
			Reason: d.reason("refused.reason", x.Refused.GetReason()), Detail: d.detail(x.Refused.GetDetail()),
		}
	case *pb.Feedback_NeedFull:
		f = cats.Feedback{
			Kind: cats.FeedbackNeedFull, Epoch: x.NeedFull.GetEpoch(), Sequence: x.NeedFull.GetLastSeq(),
			Detail: d.detail(x.NeedFull.GetDetail()),
		}
	case *pb.Feedback_Query:
		f = cats.Feedback{Kind: cats.FeedbackQuery}
		d.most("query.cs_ids", len(x.Query.GetCsIds()), MaxServices)
		for _, id := range x.Query.GetCsIds() {
			f.CSIDs = append(f.CSIDs, d.csid("query.cs_ids", id))
		}
	case *pb.Feedback_PolicyUpdate:
		f = cats.Feedback{Kind: cats.FeedbackPolicy, Policy: cats.PolicyUpdate{
			Generation: x.PolicyUpdate.GetGeneration(), Document: x.PolicyUpdate.GetDocument(),
		}}
		if n := len(f.Policy.Document); n > MaxPolicyDocument {
			d.fail("policy_update.document", cats.ReasonOversize, "%d octets, at most %d", n, MaxPolicyDocument)
		}
	default:
		d.fail("feedback", cats.ReasonUnknownType, "no message that is known here")
	}
	if d.err != nil {
		return cats.Feedback{}, d.err
	}
	return f, nil
}

func (d *decoder) rowRefusals(list []*pb.RowRefusal) []cats.RowRefusal {
	d.most("applied.refusals", len(list), MaxRows)
	var rows []cats.RowRefusal
	for _, r := range list {
		rows = append(rows, cats.RowRefusal{
			CSID:   d.csid("applied.refusals.cs_id", r.GetCsId()),
			CSCIID: d.csciid("applied.refusals.csci_id", r.GetCsciId()),
			Reason: d.reason("applied.refusals.reason", r.GetReason()),
		})
	}
	return rows
}

// EncodePolicyResult gives the message form of what became of a policy update.
func EncodePolicyResult(r cats.PolicyResult) *pb.PolicyResult {
	return &pb.PolicyResult{
		Generation: r.Generation, Reason: EncodeReason(r.Reason), Detail: printable(r.Detail, MaxDetail),
	}
}

// DecodePolicyResult checks what became of a policy update.
func DecodePolicyResult(m *pb.PolicyResult) (cats.PolicyResult, error) {
	d := &decoder{}
	r := cats.PolicyResult{
		Generation: m.GetGeneration(), Reason: d.reason("reason", m.GetReason()), Detail: d.detail(m.GetDetail()),
	}
	if d.err != nil {
		return cats.PolicyResult{}, d.err
	}
	return r, nil
}
