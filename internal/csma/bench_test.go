package csma

import (
	"fmt"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

// BenchmarkReports is reports of one service each from 1,000 instances, in batches of 256, with one C-PS.
func BenchmarkReports(b *testing.B) {
	c := testConfig()
	c.Grants = nil
	const instances, batch = 1000, 256
	reports := make([]Report, instances)
	for i := range reports {
		id := cats.CSCIID(fmt.Sprint("I", i))
		c.Grants = append(c.Grants, Grant{Agent: "sci-a", CSCIID: id, Services: []cats.CSID{"S1"}})
		reports[i] = report("sci-a", id, 0, "S1", 100)
	}
	g := newRig(b, c)
	g.open("cps-1")
	var effects Effects
	events := Events{Reports: make([]Report, batch)}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		for k := range events.Reports {
			r := &reports[(n+k)%instances]
			r.Sequence++
			events.Reports[k] = *r
			events.Reports[k].Services[0].Metrics.GAS = 100 + uint32(r.Sequence%40)
		}
		g.now = g.now.Add(time.Millisecond)
		g.core.Step(g.now, &events, &effects)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
}
