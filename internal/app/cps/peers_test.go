package cps

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run/runtest"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
	"github.com/margay-net/margay/internal/wire/sealed"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// reporter is csma-1, led by hand in a session to which the C-PS has said hello.
type reporter struct {
	t    *testing.T
	own  *trust.Credentials
	call pb.MetricService_ReportMetricsClient
}

func (b *bench) reporter(t *testing.T) *reporter {
	t.Helper()
	own := b.Credentials(trust.CSMA, "csma-1")
	conn, err := own.Dial(b.peer().Address, own.Peer(trust.CPS, "cps-1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	t.Cleanup(cancel)
	call, err := pb.NewMetricServiceClient(conn).ReportMetrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call.Recv(); err != nil {
		t.Fatal(err)
	}
	return &reporter{t, own, call}
}

// say sends an update with its seal, spoilt afterwards unless spoil is nil, and gives the answer.
func (r *reporter) say(u cats.MetricUpdate, spoil func(*pb.MetricUpdate)) (*pb.Feedback, error) {
	r.t.Helper()
	key, err := r.own.SigningKey()
	if err != nil {
		r.t.Fatal(err)
	}
	auth, err := sealed.SignEd25519(key, u.Source, sealed.CanonicalMetricUpdate(&u))
	if err != nil {
		r.t.Fatal(err)
	}
	m := v1alpha1.EncodeMetricUpdate(&u, auth)
	if spoil != nil {
		spoil(m)
	}
	if err := r.call.Send(&pb.ReportMetricsRequest{Message: &pb.ReportMetricsRequest_Update{Update: m}}); err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.call.Recv()
	return answer.GetFeedback(), err
}

// The peers of this release: a separate PCE and a registry have no channel to a C-PS.
func TestPeers(t *testing.T) {
	t.Run("CP-12-1 peers are authenticated and authorized, and reports checked for integrity, freshness, source and generation", func(t *testing.T) {
		b := newBench(t)
		d := b.start()
		t.Run("who", func(t *testing.T) { testWhoMayOpenChannels(t, b) })
		t.Run("what", func(t *testing.T) { testWhatMayBeReported(t, b, d) })
	})
}

func testWhoMayOpenChannels(t *testing.T, b *bench) {
	elsewhere := trusttest.New(t)
	var both []byte // authorities, so that the peer trusts the C-PS and itself
	for _, file := range []string{b.path("ca.crt"), filepath.Join(elsewhere.Dir, "ca.crt")} {
		certificate, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, certificate...)
	}
	b.write("both.crt", string(both))
	open := map[trust.Role]func(context.Context, *grpc.ClientConn) error{
		trust.CSMA: func(ctx context.Context, conn *grpc.ClientConn) error {
			call, err := pb.NewMetricServiceClient(conn).ReportMetrics(ctx)
			if err == nil {
				_, err = call.Recv()
			}
			return err
		},
		trust.CNMA: func(ctx context.Context, conn *grpc.ClientConn) error {
			call, err := pb.NewMetricServiceClient(conn).ReportNetwork(ctx)
			if err == nil {
				_, err = call.Recv()
			}
			return err
		},
		trust.Forwarder: func(ctx context.Context, conn *grpc.ClientConn) error {
			call, err := pb.NewSteeringServiceClient(conn).Steer(ctx)
			if err != nil {
				return err
			}
			for _, m := range v1alpha1.EncodeForwarder(&cats.ForwarderBatch{Hello: &cats.ForwarderHello{Name: "IF-1", BootID: "boot", LayoutVersion: cats.LayoutVersion}}) {
				if err := call.Send(m); err != nil {
					break // the answer tells
				}
			}
			_, err = call.Recv()
			return err
		},
	}
	for role, configured := range map[trust.Role]string{trust.CSMA: "csma-1", trust.CNMA: "cnma-1", trust.Forwarder: "IF-1"} {
		for name, c := range map[string]struct {
			role    trust.Role
			name    string
			foreign bool // of an authority that is not this domain's
			works   bool
		}{
			"a configured one is served":       {role, configured, false, true},
			"one of another authority":         {role, configured, true, false},
			"a name that is not configured":    {role, "stranger", false, false},
			"a configured name of an operator": {trust.Operator, "admin", false, false},
		} {
			t.Run(string(role)+": "+name, func(t *testing.T) {
				own := b.Credentials(c.role, c.name)
				if c.foreign {
					files := elsewhere.Issue(c.role, c.name, pki.Options{})
					files.Authority = config.Path(b.path("both.crt"))
					own = trusttest.Load(t, files)
				}
				conn, err := own.Dial(b.peer().Address, own.Peer(trust.CPS, "cps-1"), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
				defer cancel()
				if err := open[role](ctx, conn); (err == nil) != c.works || ctx.Err() != nil {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

func testWhatMayBeReported(t *testing.T, b *bench, d *runtest.Daemon[Config]) {
	sequence := uint64(0)
	for name, c := range map[string]struct {
		change func(*cats.MetricUpdate)
		spoil  func(*pb.MetricUpdate) // after it was sealed
		reason cats.Reason
	}{
		"integrity":           {func(*cats.MetricUpdate) {}, func(m *pb.MetricUpdate) { m.Records[0].Metrics.Gas++ }, cats.ReasonBadSignature},
		"freshness":           {func(u *cats.MetricUpdate) { u.Timestamp = u.Timestamp.Add(-time.Minute) }, nil, cats.ReasonReplay},
		"a source of its own": {func(u *cats.MetricUpdate) { u.Source = "csma-2" }, nil, cats.ReasonUnauthorized},
		"a site of its own":   {func(u *cats.MetricUpdate) { u.Site = "edge-2" }, nil, cats.ReasonUnauthorized},
		"generation, again":   {func(u *cats.MetricUpdate) { u.Sequence-- }, nil, cats.ReasonReplay},
		"generation, older":   {func(u *cats.MetricUpdate) { u.Sequence -= 2 }, nil, cats.ReasonSequence},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.reporter(t)
			sequence += 2
			last := report(7)(sequence)
			last.Timestamp = time.Now()
			if answer, err := r.say(last, nil); err != nil || answer.GetApplied() == nil {
				t.Fatalf("%v, %v", answer, err)
			}
			before := d.Metric("margay_cps_metric_updates_total")
			u := report(1000)(sequence + 1)
			u.Timestamp = time.Now()
			c.change(&u)
			answer, err := r.say(u, c.spoil)
			if refused := answer.GetRefused(); err == nil && refused.GetReason() != v1alpha1.EncodeReason(c.reason) || err != nil && !strings.Contains(err.Error(), c.reason.String()) {
				t.Errorf("%v, %v; want it refused by %s", answer, err, c.reason)
			}
			i, err := b.ask().ListInstances(t.Context(), &pb.ListInstancesRequest{})
			if err != nil || i.GetInstances()[0].GetReport().GetMetrics().GetGas() != 7 || d.Metric("margay_cps_metric_updates_total") != before {
				t.Errorf("it was applied: %v, %v", i, err)
			}
			if audited, err := os.ReadFile(b.path("audit")); err != nil {
				t.Error(err)
			} else if want := fmt.Sprintf(`"reason":%q`, c.reason.String()); !strings.Contains(string(audited), want) {
				testenv.Eventually(t, "it is audited", func() bool {
					audited, err := os.ReadFile(b.path("audit"))
					return err == nil && strings.Contains(string(audited), want)
				})
			}
		})
	}
}

func TestReplayWindow(t *testing.T) {
	for name, c := range map[string]struct {
		configured string
		applied    bool
	}{
		"SM-8.3-1 by default an update of two minutes ago is refused": {"", false},
		"SM-8.3-1 the window is configurable":                         {"replay_window: 5m", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write("cps.yaml", b.configuration(c.configured))
			b.start()
			u := report(10)(1)
			u.Timestamp = time.Now().Add(-2 * time.Minute)
			answer, err := b.reporter(t).say(u, nil)
			if err != nil {
				t.Fatal(err)
			}
			if (answer.GetApplied() != nil) != c.applied || !c.applied && answer.GetRefused().GetReason() != pb.Reason_REASON_REPLAY {
				t.Errorf("%v", answer)
			}
		})
	}
}
