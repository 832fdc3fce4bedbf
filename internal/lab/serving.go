package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/internal/operator/client"
)

// awaitServing waits until the C-PS has heard of every deployment, and would steer a flow from every attachment to each
// service that has slots. Its sources are ready before that: what they told may still be on its way.
func (l *Lab) awaitServing(ctx context.Context) error {
	if len(l.topology.Operators) == 0 {
		return nil // nobody may ask
	}
	domain, err := client.Load(l.OperatorConfig(), 0)
	if err != nil {
		return err
	}
	return domain.AskCPS(ctx, func(ctx context.Context, cps api.OperatorServiceClient) error {
		for {
			err := l.serves(ctx, cps)
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the domain does not serve (%w): %v", context.Cause(ctx), err)
			case <-time.After(pollEvery):
			}
		}
	})
}

// serves asks once; the error says what is missing.
func (l *Lab) serves(ctx context.Context, cps api.OperatorServiceClient) error {
	for i := range l.topology.Services {
		s := &l.topology.Services[i]
		for _, f := range l.topology.role(Forwarder) {
			for _, a := range f.Attachments {
				if !slices.Contains(s.Tenants, a.Tenant) {
					continue
				}
				answer, err := cps.Explain(ctx, &api.ExplainRequest{CsId: string(s.CSID), Ingress: string(f.Name), Attachment: string(a.Name)})
				if err != nil {
					err = errors.New(status.Convert(err).Message())
				} else {
					err = l.topology.served(s, answer)
				}
				if err != nil {
					return fmt.Errorf("service %s from attachment %s of %s: %w", s.CSID, a.Name, f.Name, err)
				}
			}
		}
	}
	return nil
}

func (t *Topology) served(s *ServiceSpec, e *api.ExplainResponse) error {
	for _, c := range e.GetCandidates() {
		if h := c.GetReport().GetHealth(); h == api.Health_HEALTH_UNSPECIFIED || h == api.Health_HEALTH_UNKNOWN {
			return fmt.Errorf("the C-PS does not know the health of %s yet", c.GetCsciId())
		}
	}
	hasSlots := slices.ContainsFunc(t.Deployments, func(d Deployment) bool { return d.CSID == s.CSID && d.Slots > 0 })
	if hasSlots && e.GetChosen() == nil {
		return fmt.Errorf("refused at stage %q: %s", e.GetRefusal().GetStage(), e.GetRefusal().GetDetail())
	}
	return nil
}
