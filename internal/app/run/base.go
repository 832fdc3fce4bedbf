package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/observe/audit"
	"github.com/margay-net/margay/internal/trust"
)

// Base is what every daemon has beside its role: log, metrics, health, audit log and credentials. The fields are set
// once by Open and are safe for concurrent use.
type Base struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Health   *observe.Health
	Refusals *observe.Reasons // margay_refusals_total{reason}: requests, reports and channels that were refused
	Audit    *audit.Log
	Trust    *trust.Credentials

	level  *slog.LevelVar
	server *observe.Server
}

// Open builds the base of a daemon of this role, and answers /metrics, /healthz and /readyz from then on; the conditions of
// health are there before the first answer. The log goes to w. On an error nothing is left open.
func Open(role trust.Role, common config.Common, w io.Writer, health *observe.Health) (*Base, error) {
	credentials, err := loadCredentials(role, common)
	if err != nil {
		return nil, err
	}
	level, err := observe.ParseLevel(common.Observe.Log)
	if err != nil {
		return nil, err
	}
	b := &Base{Registry: observe.NewRegistry(), Health: health, Trust: credentials}
	b.Log, b.level = observe.NewLogger(w)
	b.level.Set(level)
	b.Log = b.Log.With("role", string(role), "name", string(common.Name))
	b.Refusals = observe.NewReasons(b.Registry, "margay_refusals_total", "What was refused, by reason.")
	b.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "margay_certificate_expires_timestamp_seconds",
		Help: "When the daemon's certificate expires, in seconds since 1970.",
	}, func() float64 { return float64(credentials.Expires().Unix()) }))
	if b.Audit, err = OpenAudit(common, b.Log, b.Registry); err != nil {
		return nil, err
	}
	if b.server, err = observe.Serve(common.Observe.Listen, b.Registry, b.Health, b.Log); err != nil {
		return nil, errors.Join(err, b.Audit.Close(context.Background()))
	}
	return b, nil
}

// OpenAudit opens a daemon's audit log alone, for what is done with its files while it does not run.
func OpenAudit(common config.Common, log *slog.Logger, registry prometheus.Registerer) (*audit.Log, error) {
	return audit.Open(audit.Options{File: string(common.Audit.File), MaxSize: int64(common.Audit.MaxSize), Keep: common.Audit.Keep}, log, registry)
}

// Observed gives the address at which /metrics, /healthz and /readyz are answered.
func (b *Base) Observed() string { return b.server.Address().String() }

// Close ends what Open began; what still runs when ctx ends is cut off.
func (b *Base) Close(ctx context.Context) error {
	return errors.Join(b.server.Stop(ctx), b.Audit.Close(ctx))
}

// Prepare reads what a reload can change of the base: the certificates and the log level.
func (b *Base) Prepare(current, next config.Common) (commit func(), err error) {
	if err := config.Fixed(current, next, "name", "audit"); err != nil {
		return nil, err
	}
	if current.Observe.Listen != next.Observe.Listen {
		return nil, errors.New("observe.listen changed: restart the daemon to change that")
	}
	level, err := observe.ParseLevel(next.Observe.Log)
	if err != nil {
		return nil, err
	}
	trusted, err := b.Trust.Prepare(next.TLS)
	if err != nil {
		return nil, err
	}
	return func() {
		trusted()
		b.level.Set(level)
	}, nil
}

func loadCredentials(role trust.Role, common config.Common) (*trust.Credentials, error) {
	credentials, err := trust.Load(common.TLS)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	if err := credentials.Require(role, string(common.Name)); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return credentials, nil
}
