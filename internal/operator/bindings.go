package operator

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// bindingsPage is how many bindings one answer has at most.
const bindingsPage = 1024

func bindingsView() *view {
	return &view{
		name: "bindings", alias: "binding", short: "The flow binding table, in the order of the transactions", ofService: true, limited: true,
		columns: []column{
			{name: "CS-ID", meaning: "the service"},
			{name: "FLOW", meaning: "client -> service address"},
			{name: "STATE", meaning: "of the flow (CP section 10): PENDING, DESTINATION_SELECTED, BINDING_READY, ACTIVE (both halves are in place), DRAINING (ends), …"},
			{name: "CSCI-ID", meaning: "the contact instance that was selected"},
			{name: "INGRESS", meaning: "forwarder that owns the binding"},
			{name: "EGRESS", meaning: "forwarder that delivers"},
			{name: "VIA", meaning: "nodes of the forward path"},
			{name: "AGE", meaning: "since the decision"},
			{name: "PACKETS", meaning: "forward/reverse, as the ingress last reported: every 10 s while the flow is used, and at its end"},
			{name: "TRANSACTION", meaning: "trace identity of request, decision, path and binding", wide: true},
			{name: "PROTOCOL", meaning: "tcp or udp", wide: true},
			{name: "ATTACHMENT", meaning: "where the client comes in", wide: true},
			{name: "LOCATOR", meaning: "that replaces the service address", wide: true},
			{name: "SEGMENTS", meaning: "of the forward path", wide: true},
			{name: "RETURN", meaning: "segments of the return path", wide: true},
			{name: "EPOCH", meaning: "ownership of the shard when it was decided or last changed", wide: true},
			{name: "CST", meaning: "generation at the decision", wide: true},
			{name: "NST", meaning: "generation at the decision", wide: true},
			{name: "REASON", meaning: "why it ends", wide: true},
		},
		ask:  askBindings,
		fill: fillBindings,
	}
}

// askBindings asks page after page. Each page is of a moment of its own; in the order of the transactions no binding
// comes twice.
func askBindings(ctx context.Context, c api.OperatorServiceClient, q query, page func(proto.Message) error) error {
	request := &api.ListBindingsRequest{CsId: q.service, Limit: bindingsPage}
	for shown := uint64(0); ; {
		if q.limit > 0 {
			request.Limit = uint32(min(bindingsPage, q.limit-shown))
		}
		answer, err := c.ListBindings(ctx, request)
		if err == nil && shown == 0 && q.service != "" && len(answer.GetBindings()) == 0 {
			err = known(ctx, c, q.service)
		}
		if err != nil {
			return err
		}
		rows := answer.GetBindings()
		shown += uint64(len(rows))
		more := answer.GetMore() && len(rows) > 0 && shown != q.limit
		answer.More = answer.GetMore() && !more // of the pages together: whether --limit left any out
		if err := page(answer); err != nil || !more {
			return err
		}
		request.After = rows[len(rows)-1].GetBinding().GetTransaction()
	}
}

func fillBindings(t *table, m proto.Message) {
	answer := m.(*api.ListBindingsResponse)
	t.footer = fmt.Sprintf("%d in all", answer.GetTotal())
	for _, row := range answer.GetBindings() {
		b := row.GetBinding()
		forward, reverse := b.GetForward().GetPath(), b.GetReverse().GetPath()
		t.add(b.GetCsId(), tuple(b.GetMatch().GetTuple()), enum(row.GetState()), b.GetCsciId(), b.GetOwner(), b.GetEgress(),
			strings.Join(forward.GetNodes(), ","), age(row.GetAgeMs()),
			fmt.Sprintf("%d/%d", row.GetForward().GetPackets(), row.GetReverse().GetPackets()), transaction(b.GetTransaction()),
			cats.Protocol(b.GetMatch().GetTuple().GetProtocol()), b.GetMatch().GetAttachment(), locator(b.GetForward().GetLocator()),
			addresses(forward.GetSegments()), addresses(reverse.GetSegments()), fmt.Sprintf("%d.%d", b.GetEpoch().GetTerm(), b.GetEpoch().GetCounter()),
			b.GetCstGeneration(), b.GetNstGeneration(), enum(row.GetReason()))
	}
}
