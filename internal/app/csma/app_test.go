package csma

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/wire/wiretest"
)

// fast makes silence short enough for a test.
const fast = "interval: 1s\nminimum_interval: 100ms\n"

func TestFromServiceToCPS(t *testing.T) {
	l := newLab(t)
	cps, _ := l.startCPS(nil)
	address, stopService := l.service()
	csma := l.csma(l.csmaFile(fast, "sci-a"))
	sciFile := l.sciFile("sci-a", "tcp: \""+address+"\"", 100, "interval: 500ms")
	sci := l.sci(sciFile)

	row := cps.wait("HEALTHY with all its slots", "I-sci-a", func(r cats.Record) bool { return r.Health == cats.Healthy })
	if row.CSID != "S1" || row.Version != "1" || row.Metrics.GAS != 100 || row.Metrics.ComputingTimeMS != 5 || row.Reporting != cats.ReportingHealthy {
		t.Errorf("the C-PS has %+v", row)
	}
	testenv.Eventually(t, "both ready", func() bool { a, _ := csma.Ready(); b, _ := sci.Ready(); return a && b })
	if n := csma.Metric("margay_csma_rows", "HEALTHY"); n != 1 {
		t.Errorf("%v HEALTHY rows by the metrics", n)
	}
	if n := sci.Metric("margay_sci_slots", "S1"); n != 100 {
		t.Errorf("%v slots by the metrics", n)
	}

	// An administrator takes the instance out of new admissions.
	l.sciFile("sci-a", "tcp: \""+address+"\"", 0, "interval: 500ms")
	if err := sci.Reload(); err != nil {
		t.Fatal(err)
	}
	row = cps.wait("GAS 0", "I-sci-a", func(r cats.Record) bool { return r.Metrics.GAS == 0 })
	if row.Health != cats.Healthy {
		t.Errorf("the C-PS has %+v", row)
	}
	l.sciFile("sci-a", "tcp: \""+address+"\"", 7, "interval: 500ms")
	if err := sci.Reload(); err != nil {
		t.Fatal(err)
	}
	cps.wait("GAS 7", "I-sci-a", func(r cats.Record) bool { return r.Metrics.GAS == 7 })

	// The service dies.
	stopService()
	cps.wait("UNHEALTHY", "I-sci-a", func(r cats.Record) bool { return r.Health == cats.Unhealthy && r.Metrics.GAS == 0 })

	// The agent is restarted: its epoch grows, so that its first report counts.
	sci.Stop()
	sci = l.sci(sciFile)
	again := cps.wait("a report of the new start", "I-sci-a", func(r cats.Record) bool { return r.ReportEpoch > row.ReportEpoch })
	if again.ReportSequence == 0 {
		t.Errorf("the C-PS has %+v", again)
	}

	// The agent is gone for good: STALE, then withdrawn.
	sci.Stop()
	cps.wait("STALE", "I-sci-a", func(r cats.Record) bool { return r.Reporting == cats.ReportingStale })
	before := len(cps.kindsSince(0))
	cps.gone("withdrawn", "I-sci-a")
	if kinds := cps.kindsSince(before); len(kinds) == 0 || kinds[0] != cats.UpdateWithdraw {
		t.Errorf("updates %v, want a WITHDRAW first", kinds)
	}
	testenv.Eventually(t, "FAILED by the metrics", func() bool { return csma.Metric("margay_csma_rows", "FAILED") == 1 })
	if !strings.Contains(csma.Log.String(), "reporting=FAILED") {
		t.Error("the failure is not in the log")
	}

	// It comes back.
	l.sci(sciFile)
	cps.wait("back again", "I-sci-a", func(r cats.Record) bool { return r.Reporting == cats.ReportingHealthy })
}

func TestHTTPCheck(t *testing.T) {
	l := newLab(t)
	cps, _ := l.startCPS(nil)
	l.csma(l.csmaFile(fast, "sci-a"))
	web := newWeb(t)
	l.sci(l.sciFile("sci-a", "http: \""+web.url()+"/health\"", 100, ""))
	cps.wait("HEALTHY", "I-sci-a", func(r cats.Record) bool { return r.Health == cats.Healthy })
	for _, bad := range []int{500, 302, 404} {
		web.answer(bad)
		cps.wait(fmt.Sprintf("UNHEALTHY while it answers %d", bad), "I-sci-a", func(r cats.Record) bool { return r.Health == cats.Unhealthy })
		web.answer(204)
		cps.wait("DEGRADED with half its slots", "I-sci-a", func(r cats.Record) bool { return r.Health == cats.Degraded && r.Metrics.GAS == 50 })
	}
}

func TestWhoMayReport(t *testing.T) {
	l := newLab(t)
	cps, _ := l.startCPS(nil)
	csma := l.csma(l.csmaFile("", "sci-a", "sci-b"))

	refusedChannel := func(r *reporter) string {
		t.Helper()
		err := await(t, "refusal", r.down)
		r.stop()
		if len(r.up) > 0 {
			t.Error("a session was opened")
		}
		return err.Error()
	}
	audited := func(texts ...string) {
		t.Helper()
		testenv.Eventually(t, "audit record of "+strings.Join(texts, ", "), func() bool {
			return slices.ContainsFunc(strings.Split(l.audit("csma-1"), "\n"), func(line string) bool {
				return !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) })
			})
		})
	}
	refusals := func() float64 { return csma.Metric("margay_refusals_total", "unauthorized") }

	t.Run("SM-8.1-1 an agent that is not configured", func(t *testing.T) {
		before := refusals()
		refusedChannel(l.reporter(l.Credentials(trust.SCI, "sci-x")))
		audited("sci/sci-x", "unauthorized")
		if refusals() <= before {
			t.Error("not counted")
		}
	})
	t.Run("SM-8.1-1 another role", func(t *testing.T) {
		refusedChannel(l.reporter(l.Credentials(trust.Forwarder, "sci-a")))
		audited("forwarder/sci-a", "unauthorized")
	})
	t.Run("SM-8.1-1 a certificate of another authority", func(t *testing.T) {
		refusedChannel(l.reporter(l.stranger(trust.SCI, "sci-a")))
		audited("sci/sci-a", "not signed by an authority of this domain")
	})
	r := l.reporter(l.Credentials(trust.SCI, "sci-a"))
	await(t, "session", r.up)
	refuse := func(t *testing.T, report cats.SCIReport, want cats.Reason, texts ...string) {
		t.Helper()
		before := csma.Metric("margay_refusals_total", want.String())
		v := r.send(report)
		if v.Disposal != cats.ReportRefused || v.Reason != want || v.Epoch != report.Epoch || v.Sequence != report.Sequence || v.Detail == "" {
			t.Errorf("verdict %+v, want %v", v, want)
		}
		audited(append(texts, "sci/sci-a", want.String())...)
		if n := csma.Metric("margay_refusals_total", want.String()); n != before+1 {
			t.Errorf("counted %v after %v", n, before)
		}
	}
	claims := reportOf("I-sci-a", 1, cats.ServiceReport{CSID: "S2", Version: "1", Health: cats.Healthy, Metrics: cats.Metrics{GAS: 10}})
	t.Run("SM-12-1 a service that the SCI may not claim", func(t *testing.T) {
		refuse(t, claims, cats.ReasonUnauthorized, "I-sci-a", "S2")
	})
	t.Run("SM-8.1-1 another agent's instance", func(t *testing.T) {
		refuse(t, reportOf("I-sci-b", 1), cats.ReasonUnauthorized, "I-sci-b")
	})
	t.Run("out of range", func(t *testing.T) {
		report := reportOf("I-sci-a", 1)
		report.Services[0].Metrics.ComputingTimeMS = 3_600_001
		refuse(t, report, cats.ReasonRange, "I-sci-a", "computing_time_ms")
	})
	t.Run("malformed", func(t *testing.T) {
		report := reportOf("I-sci-a", 1)
		report.CSCIID = "I sci a"
		refuse(t, report, cats.ReasonMalformed)
	})
	t.Run("SM-4.2-3 twice", func(t *testing.T) {
		if v := r.send(reportOf("I-sci-a", 5)); v.Disposal != cats.ReportAccepted {
			t.Fatalf("verdict %+v", v)
		}
		refuse(t, reportOf("I-sci-a", 5), cats.ReasonReplay, "I-sci-a")
		refuse(t, reportOf("I-sci-a", 4), cats.ReasonSequence, "I-sci-a")
	})
	t.Run("nothing of it reached the C-PS, and the honest report did", func(t *testing.T) {
		cps.wait("the honest report", "I-sci-a", func(r cats.Record) bool { return r.CSID == "S1" && r.Metrics.GAS == 10 && r.ReportSequence == 5 })
		cps.mutex.Lock()
		defer cps.mutex.Unlock()
		if len(cps.rows) != 1 {
			t.Errorf("rows %v", cps.rows)
		}
	})
	t.Run("too large", func(t *testing.T) {
		report := wiretest.Report("edge-1", 1)
		report.Services = append(report.Services, report.Services...)
		before := csma.Metric("margay_refusals_total", "oversize")
		if !r.client.Send(report) {
			t.Fatal("no session")
		}
		await(t, "end of the session", r.down)
		audited("oversize", "sci/sci-a")
		if n := csma.Metric("margay_refusals_total", "oversize"); n != before+1 {
			t.Errorf("counted %v after %v", n, before)
		}
	})
	t.Run("an agent that a reload takes off the list", func(t *testing.T) {
		await(t, "session", r.up)
		l.csmaFile("", "sci-b")
		if err := csma.Reload(); err != nil {
			t.Fatal(err)
		}
		await(t, "end of the session", r.down)
		cps.gone("withdrawn", "I-sci-a")
	})
}

func TestManyAgents(t *testing.T) {
	t.Run("SM-4.1-4 each by its instance and its certificate, at the same time", func(t *testing.T) {
		const agents = 60
		l := newLab(t)
		cps, _ := l.startCPS(nil)
		names := make([]string, agents)
		for i := range names {
			names[i] = fmt.Sprint("sci-", i)
		}
		csma := l.csma(l.csmaFile("", names...))
		reporters := make([]*reporter, agents)
		for i, name := range names {
			reporters[i] = l.reporter(l.Credentials(trust.SCI, name))
		}
		for _, r := range reporters {
			await(t, "session", r.up)
		}
		if n := csma.Metric("margay_csma_agents"); n != agents {
			t.Fatalf("%v sessions at the same time, want %d", n, agents)
		}
		for round := range uint64(5) {
			for i, r := range reporters {
				report := reportOf(cats.CSCIID("I-"+names[i]), 1+round)
				report.Services[0].Metrics.GAS = uint32(1000*(round+1)) + uint32(i)
				r.client.Send(report)
				stolen := reportOf(cats.CSCIID("I-"+names[(i+1)%agents]), 100+round)
				stolen.Services[0].Metrics.GAS = 1
				r.client.Send(stolen)
			}
		}
		for _, r := range reporters {
			var accepted, refused int
			for range 10 {
				switch v := await(t, "verdict", r.verdicts); {
				case v.Disposal == cats.ReportAccepted && v.Sequence < 100:
					accepted++
				case v.Disposal == cats.ReportRefused && v.Sequence >= 100 && v.Reason == cats.ReasonUnauthorized:
					refused++
				default:
					t.Errorf("verdict %+v", v)
				}
			}
			if accepted != 5 || refused != 5 {
				t.Errorf("%d accepted, %d refused", accepted, refused)
			}
		}
		for i, name := range names {
			cps.wait("the last report of "+name, cats.CSCIID("I-"+name), func(r cats.Record) bool { return r.Metrics.GAS == uint32(5000+i) && r.ReportSequence == 5 })
		}
	})
	t.Run("a second session of an agent takes the place of the first", func(t *testing.T) {
		l := newLab(t)
		l.startCPS(nil)
		csma := l.csma(l.csmaFile("", "sci-a"))
		credentials := l.Credentials(trust.SCI, "sci-a")
		first := l.reporter(credentials)
		await(t, "session", first.up)
		second := l.reporter(credentials)
		await(t, "session", second.up)
		if err := await(t, "end of the first", first.down); !strings.Contains(err.Error(), "took its place") {
			t.Errorf("the first is told %v", err)
		}
		first.stop()
		// Where the first came back before it was stopped, the second takes a moment to be there again.
		testenv.Eventually(t, "a session to report in", func() bool { return second.client.Send(reportOf("I-sci-a", 1)) })
		if v := await(t, "verdict", second.verdicts); v.Disposal != cats.ReportAccepted {
			t.Errorf("verdict %+v", v)
		}
		if n := csma.Metric("margay_csma_agents"); n != 1 {
			t.Errorf("%v sessions", n)
		}
	})
}

// The largest report that is legal is taken, and its rows go on to the C-PS.
func TestLargestReport(t *testing.T) {
	l := newLab(t)
	cps, _ := l.startCPS(nil)
	report := wiretest.Report("edge-1", 1)
	services := make([]string, len(report.Services))
	for i := range report.Services {
		services[i] = string(report.Services[i].CSID)
	}
	l.csma(l.write(trust.CSMA, "csma-1", fmt.Sprintf(
		"site: edge-1\nlisten: [\"unix:%s\"]\ncps: [{address: \"unix:%s\", name: cps-1}]\nstate: csma-state\nscis: [{agent: sci-a, instances: [{csci_id: %q, services: [%s]}]}]\n",
		l.path("csma.sock"), l.path("cps.sock"), report.CSCIID, strings.Join(services, ", "))))
	r := l.reporter(l.Credentials(trust.SCI, "sci-a"))
	await(t, "session", r.up)
	if v := r.send(report); v.Disposal != cats.ReportAccepted {
		t.Fatalf("verdict %+v", v)
	}
	cps.wait("a row", report.CSCIID, func(record cats.Record) bool { return record.ReportSequence == report.Sequence })
}

func TestReportRate(t *testing.T) {
	t.Run("SM-12-2 reports beyond the rate are refused, counted, and delay nobody else", func(t *testing.T) {
		const burst = 5
		l := newLab(t)
		cps, _ := l.startCPS(nil)
		limit := fmt.Sprintf("report_rate: 0.1\nreport_burst: %d\n", burst)
		csma := l.csma(l.csmaFile(limit, "sci-a", "sci-b"))
		a, b := l.reporter(l.Credentials(trust.SCI, "sci-a")), l.reporter(l.Credentials(trust.SCI, "sci-b"))
		await(t, "session", a.up)
		await(t, "session", b.up)
		const flood = 60 // the queue of a session is longer
		for i := range uint64(flood) {
			if !a.client.Send(reportOf("I-sci-a", 1+i)) {
				t.Fatal("no session to report in")
			}
		}
		if v := b.send(reportOf("I-sci-b", 1)); v.Disposal != cats.ReportAccepted {
			t.Errorf("the other agent's verdict is %+v", v)
		}
		cps.wait("the other agent's row", "I-sci-b", func(cats.Record) bool { return true })
		accepted := 0
		for range flood {
			switch v := await(t, "verdict", a.verdicts); {
			case v.Disposal == cats.ReportAccepted:
				accepted++
			case v.Reason != cats.ReasonOverload || !strings.Contains(v.Detail, "more than 0.1 reports a second, or 5 at once"):
				t.Fatalf("verdict %+v", v)
			}
		}
		if accepted < burst || accepted > burst+6 { // one more in ten seconds
			t.Errorf("%d of %d were accepted", accepted, flood)
		}
		if n := csma.Metric("margay_refusals_total", "overload"); n != float64(flood-accepted) {
			t.Errorf("%v refusals are counted, want %d", n, flood-accepted)
		}
		if n := csma.Metric("margay_csma_reports_total", "refused"); n != float64(flood-accepted) {
			t.Errorf("%v refused reports are counted, want %d", n, flood-accepted)
		}
		if err := csma.Base.Audit.Flush(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(l.audit("csma-1"), `"overload"`); n < 1 || n > 20 {
			t.Errorf("%d audit records of %d refusals", n, flood-accepted)
		}

		// A new session does not begin anew; another limit holds at once.
		a.stop()
		again := l.reporter(l.Credentials(trust.SCI, "sci-a"))
		await(t, "session", again.up)
		refused := 0
		for i := range uint64(burst) {
			if v := again.send(reportOf("I-sci-a", 1000+i)); v.Reason == cats.ReasonOverload {
				refused++
			}
		}
		if refused == 0 {
			t.Error("a new session has a new burst")
		}
		l.csmaFile("report_rate: 1000\n", "sci-a", "sci-b")
		if err := csma.Reload(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the new rate", func() bool {
			return again.send(reportOf("I-sci-a", uint64(time.Now().UnixNano()))).Disposal == cats.ReportAccepted
		})
	})
}

func TestCPSRestarts(t *testing.T) {
	l := newLab(t)
	cps, stop := l.startCPS(nil)
	csma := l.csma(l.csmaFile("", "sci-a", "sci-b"))
	a, b := l.reporter(l.Credentials(trust.SCI, "sci-a")), l.reporter(l.Credentials(trust.SCI, "sci-b"))
	await(t, "session", a.up)
	await(t, "session", b.up)
	a.send(reportOf("I-sci-a", 1))
	b.send(reportOf("I-sci-b", 1))
	cps.wait("first report", "I-sci-b", func(cats.Record) bool { return true })
	cps.wait("first report", "I-sci-a", func(cats.Record) bool { return true })

	t.Run("it kept its state: what changed meanwhile, and only that", func(t *testing.T) {
		stop()
		testenv.Eventually(t, "not ready", func() bool { ok, _ := csma.Ready(); return !ok })
		if _, why := csma.Ready(); !strings.Contains(why, "cps-1") {
			t.Errorf("readiness says %q", why)
		}
		change := reportOf("I-sci-a", 2)
		change.Services[0].Metrics.GAS = 0
		a.send(change)
		before := len(cps.kindsSince(0))
		_, stop = l.startCPS(cps)
		cps.wait("what changed", "I-sci-a", func(r cats.Record) bool { return r.Metrics.GAS == 0 })
		if kinds := cps.kindsSince(before); len(kinds) == 0 || kinds[0] != cats.UpdateDelta {
			t.Errorf("updates %v, want a DELTA first", kinds)
		}
	})
	t.Run("it lost its state: everything", func(t *testing.T) {
		stop()
		testenv.Eventually(t, "not ready", func() bool { ok, _ := csma.Ready(); return !ok })
		fresh, stopFresh := l.startCPS(nil)
		stop = stopFresh
		fresh.wait("A", "I-sci-a", func(cats.Record) bool { return true })
		fresh.wait("B", "I-sci-b", func(cats.Record) bool { return true })
		if kinds := fresh.kindsSince(0); kinds[0] != cats.UpdateFull {
			t.Errorf("updates %v", kinds)
		}
	})
}

func TestCSMARestarts(t *testing.T) {
	l := newLab(t)
	cps, _ := l.startCPS(nil)
	file := l.csmaFile("", "sci-a")
	csma := l.csma(file)
	r := l.reporter(l.Credentials(trust.SCI, "sci-a"))
	await(t, "session", r.up)
	r.send(reportOf("I-sci-a", 1))
	cps.wait("first report", "I-sci-a", func(cats.Record) bool { return true })
	cps.mutex.Lock()
	epoch := cps.epoch
	cps.mutex.Unlock()
	csma.Stop()
	await(t, "end of the session", r.down)
	l.csma(file)
	await(t, "session", r.up)
	r.send(reportOf("I-sci-a", 2))
	cps.wait("a report after the restart", "I-sci-a", func(r cats.Record) bool { return r.ReportSequence == 2 })
	cps.mutex.Lock()
	defer cps.mutex.Unlock()
	if cps.epoch <= epoch {
		t.Errorf("epoch %d after %d", cps.epoch, epoch)
	}
}

func TestBadConfiguration(t *testing.T) {
	for name, test := range map[string]struct{ old, new, want string }{
		"unknown key":           {"site: edge-1", "site: edge-1\nsight: x", "csma-1.yaml:6:1: unknown key \"sight\""},
		"no C-PS":               {"cps: [{address: ", "cps: []\n#", "csma-1.yaml:1:1: the file: no C-PS to advertise to"},
		"an instance twice":     {`csci_id: "I-sci-b"`, `csci_id: "I-sci-a"`, `csci_id: instance "I-sci-a" is granted to agent "sci-a" already`},
		"an agent twice":        {"agent: sci-b", "agent: sci-a", `agent "sci-a" is there twice`},
		"a CS-ID with a space":  {"services: [S1]", `services: ["S 1"]`, "CS-ID \"S 1\""},
		"heartbeat above ttl":   {"scis:", "heartbeat: 3m\nscis:", "heartbeat 3m0s: need less than the ttl 2m30s"},
		"a negative interval":   {"scis:", "interval: -1s\nscis:", "interval"},
		"nowhere to listen":     {"listen: [\"unix:", "listen: []\n#", "listen: need an address"},
		"a report rate of 0":    {"scis:", "report_rate: 0\nscis:", "report_rate: 0 reports a second: need 0.1 to 10000"},
		"no report at once":     {"scis:", "report_burst: 0\nscis:", "report_burst: 0 reports: need 1 to 10000"},
		"rows beyond an update": {"scis:", "rows: 20000\nscis:", "20000 rows"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			file := l.csmaFile("", "sci-a", "sci-b")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), test.old) {
				t.Fatalf("%q is not in the file", test.old)
			}
			if err := os.WriteFile(file, []byte(strings.Replace(string(text), test.old, test.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := config.Load[Config](file); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v\nwant   %s", err, test.want)
			}
		})
	}
	t.Run("a reload of what takes a restart changes nothing", func(t *testing.T) {
		l := newLab(t)
		csma := l.csma(l.csmaFile("", "sci-a"))
		file := l.csmaFile("", "sci-a", "sci-b")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), "site: edge-1", "site: edge-2", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := csma.Reload(); err == nil || !strings.Contains(err.Error(), "site changed") {
			t.Errorf("%v", err)
		}
		r := l.reporter(l.Credentials(trust.SCI, "sci-b"))
		await(t, "refusal", r.down)
	})
	t.Run("a key that cannot sign updates", func(t *testing.T) {
		l := newLab(t)
		file := l.csmaFile("", "sci-a")
		loaded, err := config.Load[Config](file)
		if err != nil {
			t.Fatal(err)
		}
		base, err := run.Open(trust.CSMA, loaded.Shared(), io.Discard, &observe.Health{})
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close(context.Background())
		base.Trust = l.Credentials(trust.CPS, "cps-1") // an ECDSA key
		if _, err := New(context.Background(), loaded, base); err == nil || !strings.Contains(err.Error(), "Ed25519") {
			t.Errorf("%v", err)
		}
	})
}
