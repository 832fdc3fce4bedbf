package cps

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

func from(q cats.ServiceRequest, source string) cats.ServiceRequest {
	q.Key.Tuple.Source = netip.MustParseAddrPort(source)
	return q
}

func TestSourceOfARequest(t *testing.T) {
	outside := "198.51.100.7:51000"
	t.Run("a source outside the attachment's prefixes is refused, in a request as in an explanation", func(t *testing.T) {
		s := ready(t)
		q := from(s.newRequest(51000), outside)
		x := s.explain(q)
		s.request(q)
		if r := s.refusal(q); r.Reason != cats.ReasonUnauthorized || r.Detail != x.Detail || !strings.Contains(r.Detail, "need an address of 192.0.2.0/24") {
			t.Errorf("refused with %+v", r)
		}
		if x.Refusal != cats.ReasonUnauthorized || x.Chosen != nil {
			t.Errorf("explained %+v", x)
		}
		s.wantEmpty()
	})
	t.Run("a forwarder that is configured anew tells its prefixes within the session", func(t *testing.T) {
		s := ready(t)
		s.batch("IF-1", cats.ForwarderBatch{Attachments: []cats.ClientAttachment{
			{Name: "client-1", Tenant: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}})
		if x := s.explain(from(s.newRequest(51000), outside)); x.Chosen == nil {
			t.Errorf("%+v", x)
		}
		if x := s.explain(s.newRequest(51000)); x.Refusal != cats.ReasonUnauthorized {
			t.Errorf("%+v", x)
		}
		s.batch("IF-1", cats.ForwarderBatch{Attachments: []cats.ClientAttachment{}})
		if x := s.explain(s.newRequest(51000)); x.Refusal != cats.ReasonUnauthorized || !strings.Contains(x.Detail, "is not configured with attachment client-1") {
			t.Errorf("%+v", x)
		}
	})
	t.Run("an attachment without prefixes takes every source", func(t *testing.T) {
		s := ready(t)
		h := hello("IF-1")
		h.Attachments[0].Prefixes = nil
		s.hello(h)
		if x := s.explain(from(s.newRequest(51000), outside)); x.Chosen == nil {
			t.Errorf("%+v", x)
		}
	})
}

func TestWhatCannotBeATuple(t *testing.T) {
	for want, change := range map[string]func(*cats.Tuple){
		"protocol 1 cannot be steered: need 6 (tcp) or 17 (udp)":                        func(t *cats.Tuple) { t.Protocol = 1 },
		"the flow has no source address: need an IPv4 or IPv6 address":                  func(t *cats.Tuple) { t.Source = netip.AddrPort{} },
		"target 192.0.2.100 has port 0: need 1 to 65535":                                func(t *cats.Tuple) { t.Target = netip.AddrPortFrom(t.Target.Addr(), 0) },
		"source 2001:db8::7 is of IPv6 and target 192.0.2.100 of IPv4":                  func(t *cats.Tuple) { t.Source = netip.MustParseAddrPort("[2001:db8::7]:51000") },
		"need a source of IPv4":                                                         func(t *cats.Tuple) { t.Source = netip.MustParseAddrPort("[2001:db8::7]:51000") },
		"::ffff:192.0.2.10 is an IPv4-mapped IPv6 address: need it as IPv4, 192.0.2.10": func(t *cats.Tuple) { t.Source = netip.MustParseAddrPort("[::ffff:192.0.2.10]:51000") },
	} {
		s := ready(t)
		q := s.newRequest(51000)
		change(&q.Key.Tuple)
		if x := s.explain(q); x.Refusal != cats.ReasonMalformed || !strings.Contains(x.Detail, want) {
			t.Errorf("%s: %q, want %q", x.Refusal, x.Detail, want)
		}
	}
}

func TestAttachmentsThatDisagree(t *testing.T) {
	told := func(s *script) (details []string) {
		for _, a := range s.out.Audit {
			if a.Event == "attachments-disagree" {
				if a.Subject != "IF-1" || a.Reason != cats.ReasonUnauthorized {
					s.t.Errorf("%+v", a)
				}
				details = append(details, a.Detail)
			}
		}
		return details
	}
	want := func(s *script, texts ...string) {
		s.t.Helper()
		got := told(s)
		if len(texts) == 0 && len(got) == 0 {
			return
		}
		if len(got) != 1 {
			s.t.Fatalf("told %q, want %q", got, texts)
		}
		for _, text := range texts {
			if !strings.Contains(got[0], text) {
				s.t.Errorf("told %q, want %q", got[0], text)
			}
		}
	}
	s := newScript(t, Config{})
	s.step(Events{Domain: domain(t, records())})
	h := hello("IF-1")
	h.Attachments = []cats.ClientAttachment{{Name: "client-1", Tenant: "other"}, {Name: "client-2", Tenant: "default"}}
	s.hello(h)
	want(s, "client-1 belongs to tenant default in the catalogue and to other in the forwarder's configuration", "client-2 is only in the forwarder's configuration")
	s.hello(h)
	want(s) // it is known
	s.batch("IF-1", cats.ForwarderBatch{Attachments: hello("IF-1").Attachments})
	want(s) // they agree

	r := records()
	r.Attachments = append(r.Attachments, catalogue.Attachment{Ingress: "IF-1", Name: "client-9", Tenant: "default"})
	s.step(Events{Domain: domain(t, r)})
	want(s, "client-9 is only in the catalogue")
	s.step(Events{Domain: domain(t, records())})
	want(s)
	s.hello(h)
	if len(told(s)) != 1 {
		t.Errorf("what disagrees again is not told again: %+v", s.out.Audit)
	}
}

func TestRefusedFlows(t *testing.T) {
	s := ready(t)
	s.report("csma-1", 0, 5)
	s.report("csma-2", 0, 5)
	q := s.newRequest(51000)
	s.request(q)
	all := s.out.Refused
	if len(all) != 1 || all[0].Transaction != q.Transaction || all[0].Key != q.Key || all[0].Ingress != "IF-1" ||
		all[0].Reason != cats.ReasonNoCandidate || all[0].Stage != "slots" || all[0].Detail == "" {
		t.Errorf("%+v", all)
	}
	if s.step(Events{}); len(s.out.Refused) != 0 {
		t.Errorf("told again: %+v", s.out.Refused)
	}
}
