package cps

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// operatorMethods is who may call what.
var operatorMethods = trust.Methods{
	pb.OperatorService_ListServices_FullMethodName:   {trust.Operator},
	pb.OperatorService_ListInstances_FullMethodName:  {trust.Operator},
	pb.OperatorService_ListPaths_FullMethodName:      {trust.Operator},
	pb.OperatorService_ListBindings_FullMethodName:   {trust.Operator},
	pb.OperatorService_ListForwarders_FullMethodName: {trust.Operator},
	pb.OperatorService_Explain_FullMethodName:        {trust.Operator},
}

// operator answers the calls of operators. What it shows is copied by the owner between two Steps.
type operator struct {
	pb.UnimplementedOperatorServiceServer
	app *App
}

var errStopping = status.Error(codes.Unavailable, "the C-PS stops")

// ask has the owner run f after a Step, and waits for it.
func (o *operator) ask(ctx context.Context, f func(now cats.Instant)) error {
	ran := make(chan struct{})
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if !o.app.post(event{call: func() { defer close(ran); f(o.app.clock()) }}) {
		return errStopping
	}
	select {
	case <-ran:
		return nil
	case <-o.app.stopped:
		return errStopping
	}
}

// ListServices gives the services with what is available of them.
func (o *operator) ListServices(ctx context.Context, _ *pb.ListServicesRequest) (*pb.ListServicesResponse, error) {
	r := &pb.ListServicesResponse{}
	var all []core.ServiceView
	err := o.ask(ctx, func(now cats.Instant) {
		_, r.Generation = o.app.core.Catalogue()
		all = o.app.core.Services(now)
	})
	for i := range all {
		r.Services = append(r.Services, encodeService(&all[i]))
	}
	return r, err
}

// ListInstances gives the CST joined with the catalogue.
func (o *operator) ListInstances(ctx context.Context, q *pb.ListInstancesRequest) (*pb.ListInstancesResponse, error) {
	r := &pb.ListInstancesResponse{}
	var all []core.InstanceView
	err := o.ask(ctx, func(now cats.Instant) {
		_, r.CatalogueGeneration = o.app.core.Catalogue()
		r.CstGeneration, _ = o.app.core.Generations()
		all = o.app.core.Instances(now)
	})
	for i := range all {
		if q.GetCsId() == "" || q.GetCsId() == string(all[i].Instance.CSID) {
			r.Instances = append(r.Instances, encodeInstance(&all[i]))
		}
	}
	return r, err
}

// ListPaths gives the NST, with the path of each row as it would be computed now.
func (o *operator) ListPaths(ctx context.Context, q *pb.ListPathsRequest) (*pb.ListPathsResponse, error) {
	r := &pb.ListPathsResponse{}
	err := o.ask(ctx, func(now cats.Instant) {
		_, r.NstGeneration = o.app.core.Generations()
		r.TedbGeneration = o.app.topology.generation
		for _, row := range o.app.core.Paths(now) {
			if (q.GetHeadend() == "" || q.GetHeadend() == row.Headend) && (q.GetEgress() == "" || q.GetEgress() == row.Egress) {
				r.Paths = append(r.Paths, encodePathRow(&row, o.app.pathOf(&row)))
			}
		}
	})
	return r, err
}

// pathOf computes the path of an NST row, toward the first instance at its egress; nil where there is none. It runs in
// the owner.
func (a *App) pathOf(row *core.PathRowView) *cats.Path {
	for _, d := range a.config.domain.Catalogue.Records().Deployments {
		for _, e := range d.Egress {
			if e.Forwarder != row.Egress || a.topology.snapshot == nil {
				continue
			}
			reply := a.topology.snapshot.Compute(cats.PathRequest{
				Transaction: shownTransaction, Headend: row.Headend, Egress: row.Egress, Endpoint: e.SID, Domain: a.topology.domain,
				Color: row.Color, Capabilities: cats.Capabilities{Encapsulations: cats.EncapSRv6, MaxSegments: mostSegments},
			})
			if reply.Status != cats.PathFound {
				return nil
			}
			return pathOf(&reply)
		}
	}
	return nil
}

const mostSegments = 16 // of a path that is shown

// shownTransaction is that of what is worked out for an operator alone.
var shownTransaction = cats.Transaction{'s', 'h', 'o', 'w', 'n'}

func pathOf(p *cats.PathReply) *cats.Path {
	return &cats.Path{Kind: p.Kind, Segments: p.Segments, Nodes: p.Nodes, Generation: p.TEDBGeneration, DelayUS: p.Metrics.DelayUS}
}

const (
	defaultRows = 1024
	mostRows    = 16_384
)

// ListBindings gives the flow binding table, a page at a time.
func (o *operator) ListBindings(ctx context.Context, q *pb.ListBindingsRequest) (*pb.ListBindingsResponse, error) {
	query := core.FlowQuery{CSID: cats.CSID(q.GetCsId()), CSCIID: cats.CSCIID(q.GetCsciId()), Limit: int(q.GetLimit())}
	switch {
	case query.Limit == 0:
		query.Limit = defaultRows
	case query.Limit > mostRows:
		return nil, status.Errorf(codes.InvalidArgument, "limit %d: need at most %d", query.Limit, mostRows)
	}
	if after := q.GetAfter(); len(after) == len(query.After) {
		query.After = cats.Transaction(after)
	} else if len(after) > 0 {
		return nil, status.Errorf(codes.InvalidArgument, "after: a transaction has %d octets, this has %d", len(query.After), len(after))
	}
	r := &pb.ListBindingsResponse{}
	var page []core.FlowView
	limit := query.Limit
	query.Limit++ // one more tells whether there are more
	err := o.ask(ctx, func(now cats.Instant) {
		var total int
		page, total = o.app.core.FlowPage(now, query)
		r.Total = uint64(total)
	})
	if r.More = len(page) > limit; r.More {
		page = page[:limit]
	}
	for i := range page {
		r.Bindings = append(r.Bindings, encodeFlow(&page[i]))
	}
	return r, err
}

// ListForwarders gives the forwarders of the domain.
func (o *operator) ListForwarders(ctx context.Context, _ *pb.ListForwardersRequest) (*pb.ListForwardersResponse, error) {
	r := &pb.ListForwardersResponse{Shard: uint32(shard), Epoch: v1alpha1.EncodeEpoch(o.app.epoch)}
	err := o.ask(ctx, func(now cats.Instant) {
		for _, f := range o.app.core.Forwarders() {
			r.Forwarders = append(r.Forwarders, encodeForwarder(&f, now))
		}
	})
	return r, err
}

// Explain works a decision out, and does nothing.
func (o *operator) Explain(ctx context.Context, q *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	var current *catalogue.Catalogue
	var generation uint64
	var provisioned []cats.ClientAttachment
	err := o.ask(ctx, func(cats.Instant) {
		current, generation = o.app.core.Catalogue()
		provisioned = o.app.core.Attachments(q.GetIngress())
	})
	if err != nil {
		return nil, err
	}
	request, err := explained(q, current, provisioned)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	answer := make(chan core.Explanation, 1)
	if !o.app.post(event{explain: request, answer: answer}) {
		return nil, errStopping
	}
	select {
	case x := <-answer:
		r := encodeExplanation(&x, current)
		r.CatalogueGeneration, r.TimeMs = generation, o.app.clock().Wall().UnixMilli()
		return r, nil
	case <-o.app.stopped:
		return nil, errStopping
	}
}

// explained makes the service request that an operator asks about; what is left open is taken from the catalogue, the
// client from the attachments that the ingress has.
func explained(q *pb.ExplainRequest, c *catalogue.Catalogue, provisioned []cats.ClientAttachment) (*cats.ServiceRequest, error) {
	id := identityOf(q.GetCsId(), c)
	r := &cats.ServiceRequest{Transaction: shownTransaction, CSID: id, Ingress: q.GetIngress(), Remaining: core.DefaultTiming().Pending}
	attached, err := attachmentOf(q, c)
	if err != nil {
		return nil, err
	}
	r.Key.Attachment, r.Key.Tenant = attached.Name, attached.Tenant
	if r.Key.Tuple, err = tupleOf(q, id, c); err != nil {
		return nil, err
	}
	if q.GetSource() == nil {
		if r.Key.Tuple.Source, err = clientOf(q.GetIngress(), attached.Name, provisioned, r.Key.Tuple.Target.Addr()); err != nil {
			return nil, err
		}
	}
	if q.GetConstraints() != nil {
		if r.Constraints, err = v1alpha1.DecodeConstraints(q.GetConstraints()); err != nil {
			return nil, fmt.Errorf("constraints: %w", err)
		}
	}
	return r, nil
}

func attachmentOf(q *pb.ExplainRequest, c *catalogue.Catalogue) (catalogue.Attachment, error) {
	var at []string
	var last catalogue.Attachment
	for _, a := range c.Records().Attachments {
		if a.Ingress == q.GetIngress() && (q.GetAttachment() == "" || q.GetAttachment() == a.Name) {
			at, last = append(at, a.Name), a
		}
	}
	switch {
	case len(at) == 1:
		return last, nil
	case len(at) > 1:
		return last, fmt.Errorf("ingress %s has the attachments %s: name one", q.GetIngress(), strings.Join(at, ", "))
	case q.GetAttachment() != "":
		return last, fmt.Errorf("ingress %s has no attachment %q", q.GetIngress(), q.GetAttachment())
	}
	return last, fmt.Errorf("no client attaches at %q", q.GetIngress())
}

// identityOf gives the CS-ID that an operator names: itself, or by the number of a service where no service has these
// digits as its CS-ID.
func identityOf(name string, c *catalogue.Catalogue) cats.CSID {
	id := cats.CSID(name)
	number, err := strconv.ParseUint(name, 10, 32)
	if err != nil || c.Service(id) != nil {
		return id
	}
	for _, s := range c.Records().Services {
		if s.Number != 0 && uint64(s.Number) == number {
			return s.CSID
		}
	}
	return id
}

// clientPort is that of a client whose address and port an operator leaves open.
const clientPort = 49152

// clientOf makes a client that may come in at an attachment, of the family of the target. The zero AddrPort: the ingress
// has no such attachment, or no session, which the core tells.
func clientOf(ingress, attachment string, provisioned []cats.ClientAttachment, target netip.Addr) (netip.AddrPort, error) {
	i := slices.IndexFunc(provisioned, func(a cats.ClientAttachment) bool { return a.Name == attachment })
	if i < 0 {
		return netip.AddrPort{}, nil
	}
	every := len(provisioned[i].Prefixes) == 0
	for _, p := range provisioned[i].Prefixes {
		if p.Addr().Is4() == target.Is4() {
			if every = p.Bits() == 0; every {
				break
			}
			return netip.AddrPortFrom(hostOf(p), clientPort), nil
		}
	}
	if every {
		return netip.AddrPort{}, fmt.Errorf("attachment %s at %s takes clients of every address: name a source", attachment, ingress)
	}
	return netip.AddrPort{}, fmt.Errorf("no source prefix of attachment %s at %s is of the family of target %s: no client there can reach it; name another target, or an attachment of that family",
		attachment, ingress, target)
}

// hostOf gives the tenth address after a prefix's first, or the highest below it that is not the prefix's last: the first
// ones are often those of routers.
func hostOf(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr()
	for range 10 {
		if next := a.Next(); next.IsValid() && p.Contains(next) && p.Contains(next.Next()) {
			a = next
		}
	}
	return a
}

// anyTarget is the target of a flow whose service is not known.
var anyTarget = netip.MustParseAddrPort("192.0.2.1:9")

// tupleOf gives what is asked about, but the source only where it is named.
func tupleOf(q *pb.ExplainRequest, id cats.CSID, c *catalogue.Catalogue) (t cats.Tuple, err error) {
	if q.GetTarget() != nil {
		if t.Target, err = v1alpha1.DecodeEndpoint(q.GetTarget()); err != nil {
			return t, fmt.Errorf("target: %w", err)
		}
	}
	if t.Protocol, t.Target, err = addressOf(q, id, c, t.Target); err != nil {
		return t, err
	}
	if q.GetSource() != nil {
		if t.Source, err = v1alpha1.DecodeEndpoint(q.GetSource()); err != nil {
			return t, fmt.Errorf("source: %w", err)
		}
	}
	return t, nil
}

// addressOf completes what is asked about by the service: its first address that fits, or the address of the only
// protocol that a target is published for.
func addressOf(q *pb.ExplainRequest, id cats.CSID, c *catalogue.Catalogue, target netip.AddrPort) (cats.Protocol, netip.AddrPort, error) {
	protocol := cats.Protocol(q.GetProtocol())
	if q.GetProtocol() != 0 && protocol != cats.TCP && protocol != cats.UDP {
		return 0, target, fmt.Errorf("protocol %d: need 6 (tcp) or 17 (udp)", q.GetProtocol())
	}
	s := c.Service(id)
	if s != nil {
		for _, a := range s.Addresses {
			if (protocol == 0 || protocol == a.Protocol) && (!target.IsValid() || target.Port() == a.Port && a.Prefix.Contains(target.Addr())) {
				if !target.IsValid() {
					target = netip.AddrPortFrom(a.Prefix.Addr(), a.Port)
				}
				return a.Protocol, target, nil
			}
		}
	}
	switch {
	case !target.IsValid() && s == nil && q.GetCsId() != "":
		return cats.TCP, anyTarget, nil // the core says that it does not know the service
	case !target.IsValid():
		return 0, target, fmt.Errorf("service %q has no address that fits: name a target", q.GetCsId())
	}
	if protocol == 0 {
		protocol = cats.TCP
		if c.Resolve(cats.TCP, target) == nil && c.Resolve(cats.UDP, target) != nil {
			protocol = cats.UDP
		}
	}
	return protocol, target, nil
}
