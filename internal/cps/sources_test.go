package cps

import (
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

func (s *script) reply(kind SourceReplyKind) SourceReply {
	s.t.Helper()
	last := len(s.out.SourceReplies) - 1
	if last < 0 || s.out.SourceReplies[last].Kind != kind {
		s.t.Fatalf("replies %+v, want kind %d last", s.out.SourceReplies, kind)
	}
	return s.out.SourceReplies[last]
}

func TestSources(t *testing.T) {
	row := func(s *script, id cats.CSCIID) bool {
		return s.core.cst.Row(catalogue.Instance{CSID: "S1", CSCIID: id}) != nil
	}
	start := func(t *testing.T) *script {
		s := newScript(t, Config{})
		s.step(Events{Domain: domain(t, records())})
		return s
	}
	t.Run("SM-9.3-1 a session opens with what survived, and updates are acknowledged", func(t *testing.T) {
		s := start(t)
		s.step(Events{Sources: []SourceEvent{{Name: "csma-1", Session: 1, Opened: true}}})
		if r := s.reply(SourceHello); r.Epoch != 0 || r.Sequence != 0 || r.Session != 1 {
			t.Errorf("%+v", r)
		}
		s.report("csma-1", 10, 5)
		if r := s.reply(SourceAck); r.Epoch != 1 || r.Sequence != 1 {
			t.Errorf("%+v", r)
		}
		s.step(Events{Sources: []SourceEvent{{Name: "csma-1", Session: 2, Opened: true}}})
		if r := s.reply(SourceHello); r.Epoch != 1 || r.Sequence != 1 || r.Session != 2 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("SM-9.3-1 a DELTA that builds on nothing asks for a FULL", func(t *testing.T) {
		s := start(t)
		u := s.update("csma-1", s.record("csma-1", 10, 5))
		u.Kind = cats.UpdateDelta
		s.send("csma-1", u)
		if r := s.reply(SourceNeedFull); r.Detail == "" {
			t.Errorf("%+v", r)
		}
		if row(s, csciA) {
			t.Error("it was applied")
		}
	})
	for name, c := range map[string]struct {
		change func(*cats.MetricUpdate)
		reason cats.Reason
	}{
		"an update in another source's name": {func(u *cats.MetricUpdate) { u.Source = "csma-2" }, cats.ReasonUnauthorized},
		"an update for another site":         {func(u *cats.MetricUpdate) { u.Site = "edge-2" }, cats.ReasonUnauthorized},
		"an update without lifetime":         {func(u *cats.MetricUpdate) { u.TTL = 0 }, cats.ReasonMalformed},
		"an update without sequence":         {func(u *cats.MetricUpdate) { u.Sequence = 0 }, cats.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			u := s.update("csma-1", s.record("csma-1", 10, 5))
			c.change(u)
			s.send("csma-1", u)
			if r := s.reply(SourceRefused); r.Reason != c.reason || r.Detail == "" {
				t.Errorf("%+v", r)
			}
			if row(s, csciA) || len(s.out.Audit) == 0 {
				t.Errorf("it was applied, or not audited: %+v", s.out.Audit)
			}
		})
	}
	t.Run("a WITHDRAW has no use for a lifetime, and touches what it names alone", func(t *testing.T) {
		s := start(t)
		r := records()
		r.Deployments[1].Site = "edge-1"
		s.step(Events{Domain: domain(t, r)})
		s.send("csma-1", s.update("csma-1", s.record("csma-1", 10, 5), s.record("csma-2", 10, 5)))
		s.wait(100 * time.Second)
		u := s.update("csma-1", s.record("csma-1", 0, 0))
		u.Kind, u.Base, u.TTL = cats.UpdateWithdraw, u.Sequence-1, 0
		s.send("csma-1", u)
		s.reply(SourceAck)
		i := s.core.Instances(s.now)
		if i[0].Report.Validity != cats.Withdrawn || i[1].Report.Validity != cats.Valid || i[1].Report.Age != 100*time.Second {
			t.Errorf("%+v, %+v", i[0].Report, i[1].Report)
		}
		s.wait(50 * time.Second)
		if i := s.core.Instances(s.now); i[1].Report.Validity != cats.Stale {
			t.Errorf("%+v", i[1].Report)
		}
	})
	t.Run("CP-5-2 rows of instances that are not the source's are left out", func(t *testing.T) {
		s := start(t)
		other, unknown, service := s.record("csma-2", 10, 5), s.record("csma-1", 10, 5), s.record("csma-1", 10, 5)
		unknown.CSCIID, service.CSID = "nowhere", "S9"
		s.send("csma-1", s.update("csma-1", s.record("csma-1", 10, 5), other, unknown, service))
		r := s.reply(SourceAck)
		if len(r.Rejected) != 3 {
			t.Fatalf("rejected %+v", r.Rejected)
		}
		for _, left := range r.Rejected {
			if left.Reason != cats.ReasonUnauthorized || left.Detail == "" {
				t.Errorf("%+v", left)
			}
		}
		if !row(s, csciA) || row(s, csciB) {
			t.Error("want the source's own row alone")
		}
	})
	t.Run("a source that the domain does not have is refused", func(t *testing.T) {
		s := start(t)
		s.step(Events{Sources: []SourceEvent{{Name: "csma-9", Session: 1, Opened: true}}})
		if r := s.reply(SourceRefused); r.Reason != cats.ReasonUnauthorized {
			t.Errorf("%+v", r)
		}
	})
	t.Run("CP-5-2 rows of a source that is no longer authorized admit nothing", func(t *testing.T) {
		s := ready(t)
		d := domain(t, records())
		d.Sources[1].Services = nil
		s.step(Events{Domain: d})
		if b := s.activate(51000); b.CSCIID != csciA {
			t.Errorf("%s", b.CSCIID)
		}
	})
	t.Run("a new catalogue asks connected sources for everything", func(t *testing.T) {
		s := ready(t)
		s.step(Events{Domain: domain(t, records())})
		if len(s.out.SourceReplies) != 2 || s.out.SourceReplies[0].Kind != SourceNeedFull {
			t.Errorf("%+v", s.out.SourceReplies)
		}
	})
	t.Run("CP-13.1-1 the loss of reports ages no path, and the reverse", func(t *testing.T) {
		s := ready(t)
		s.wait(40 * time.Second)
		if p := s.core.Paths(s.now); len(p) != 4 || p[0].Validity != cats.Stale {
			t.Errorf("%+v", p)
		}
		if i := s.core.Instances(s.now); i[0].Report.Validity != cats.Valid {
			t.Errorf("%+v", i[0].Report)
		}
		s.wait(2 * time.Minute)
		s.paths()
		if p := s.core.Paths(s.now); p[0].Validity != cats.Valid {
			t.Errorf("%+v", p[0])
		}
		if i := s.core.Instances(s.now); i[0].Report.Validity != cats.Stale {
			t.Errorf("%+v", i[0].Report)
		}
	})
	t.Run("an older path view changes nothing", func(t *testing.T) {
		s := ready(t)
		s.paths()
		s.step(Events{Paths: &PathView{Generation: 1}})
		if _, generation := s.core.Generations(); generation != 2 || len(s.core.Paths(s.now)) != 4 {
			t.Errorf("generation %d, %d rows", generation, len(s.core.Paths(s.now)))
		}
	})
}
