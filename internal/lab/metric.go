package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metric gives the value of a counter or gauge of a daemon, summed over its labels, from its /metrics.
func (l *Lab) Metric(ctx context.Context, daemon, name string) (float64, error) {
	d, err := l.Daemon(daemon)
	if err != nil {
		return 0, err
	}
	families, err := scrape(ctx, d)
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", daemon, err)
	}
	family := families[name]
	if family == nil {
		return 0, fmt.Errorf("metrics of %s: there is no %s", daemon, name)
	}
	sum := 0.0
	for _, m := range family.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum, nil
}

func scrape(ctx context.Context, d Daemon) (map[string]*dto.MetricFamily, error) {
	network, address := d.Observe.Network()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}
