package operator

import (
	"fmt"
	"io"
	"strings"

	api "github.com/margay-net/margay/api/margayv1alpha1"
)

// candidateColumns are the columns of the candidates of an explanation.
var candidateColumns = []column{
	{name: "RANK", meaning: "1 is chosen; -: a stage of selection removed it"},
	{name: "CSCI-ID", meaning: "the contact instance"},
	{name: "EGRESS", meaning: "forwarder that would deliver"},
	{name: "REAL DELAY", meaning: "computing time plus network delay"},
	{name: "COMPUTING", meaning: "time of one request, as reported"},
	{name: "NETWORK", meaning: "one-way delay from the ingress to the egress; -: not reachable"},
	{name: "GAS", meaning: "Global Available Slots, as reported"},
	{name: "EFFECTIVE", meaning: "slots that could be taken: GAS less what bindings hold"},
	{name: "HEALTH", meaning: "as reported; UNKNOWN once the report has expired; -: nothing is reported, or it was withdrawn"},
	{name: "REPORT AGE", meaning: "of the computing metrics"},
	{name: "PATH AGE", meaning: "of the network metrics"},
	{name: "WHY", meaning: "the stage that removed it and what it saw; or how it was chosen among equals"},
}

// WriteExplanation writes a decision for a person: the resolution, every candidate with its rank or the filter that
// removed it, the paths, and the packet at the four points of CP section 16.
func WriteExplanation(w io.Writer, e *api.ExplainResponse) error {
	var text strings.Builder
	writeBasis(&text, e)
	if err := writeCandidates(&text, e); err != nil {
		return err
	}
	if refusal := e.GetRefusal(); refusal != nil {
		writeRefusal(&text, refusal)
	} else {
		writeChosen(&text, e.GetChosen())
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// writeBasis writes what the decision rests on. A band is there where something was ranked, and a generation of the TEDB
// where a path was computed.
func writeBasis(w *strings.Builder, e *api.ExplainResponse) {
	if r := e.GetResolution(); r.GetCsId() != "" {
		fmt.Fprintf(w, "service     %s, by %s", r.GetCsId(), r.GetBy())
		if r.GetAddress() != nil {
			fmt.Fprintf(w, " (%s)", serviceAddress(r.GetAddress()))
		}
		fmt.Fprintf(w, ", tenant %s\npolicy      %s", r.GetTenant(), enum(e.GetPolicy()))
		if ranked(e) > 0 {
			fmt.Fprintf(w, ", band %s", micros(e.GetBand()))
		}
		fmt.Fprintf(w, ", version %s\n", e.GetPolicyVersion())
	}
	fmt.Fprintf(w, "generations catalogue %d, CST %d, NST %d", e.GetCatalogueGeneration(), e.GetCstGeneration(), e.GetNstGeneration())
	if e.GetTedbGeneration() > 0 {
		fmt.Fprintf(w, ", TEDB %d", e.GetTedbGeneration())
	}
	w.WriteString("\n\n")
}

// ranked counts the candidates that no stage removed.
func ranked(e *api.ExplainResponse) (n int) {
	for _, c := range e.GetCandidates() {
		if c.GetRank() > 0 {
			n++
		}
	}
	return n
}

func writeCandidates(w *strings.Builder, e *api.ExplainResponse) error {
	if len(e.GetCandidates()) == 0 {
		return nil
	}
	t := &table{columns: candidateColumns}
	for _, c := range e.GetCandidates() {
		t.add(candidateCells(c, why(e, c))...)
	}
	err := t.write(w)
	w.WriteByte('\n')
	return err
}

func candidateCells(c *api.Candidate, why string) []any {
	rank, realDelay, computing, gas, status, reportAge := "-", "-", "-", "-", "-", "-"
	network, pathAge := "-", "-"
	if c.GetRank() > 0 {
		rank = fmt.Sprint(c.GetRank())
	}
	if r := c.GetReport(); r != nil {
		computing, gas = fmt.Sprintf("%dms", r.GetMetrics().GetComputingTimeMs()), fmt.Sprint(r.GetMetrics().GetGas())
		status, reportAge = health(r), age(r.GetAgeMs())
	}
	if p := c.GetPath(); p != nil {
		network, pathAge = delay(p), age(p.GetAgeMs())
		if c.RealDelayUs != nil && p.GetReachable() {
			realDelay = micros(c.GetRealDelayUs())
		}
	}
	return []any{rank, c.GetCsciId(), c.GetEgress(), realDelay, computing, network, gas, c.GetEffectiveSlots(), status, reportAge, pathAge, why}
}

// why says what removed a candidate, or how the choice was made where several are equal to the best.
func why(e *api.ExplainResponse, c *api.Candidate) string {
	switch {
	case c.GetStage() != "":
		return c.GetStage() + ": " + c.GetDetail()
	case !c.GetEqualToBest():
		return c.GetDetail()
	}
	best, others := (*api.Candidate)(nil), 0
	for _, other := range e.GetCandidates() {
		switch {
		case other.GetRank() == 1:
			best = other
		case other.GetEqualToBest():
			others++
		}
	}
	if best == nil || others == 0 {
		return c.GetDetail()
	}
	text := fmt.Sprintf("equal within the band of %s; ", micros(e.GetBand()))
	switch healthy := best.GetReport().GetHealth() == api.Health_HEALTH_HEALTHY; {
	case c == best && (!healthy || rivals(e)):
		return text + "chosen by " + tieBreak(e)
	case c == best:
		return text + "chosen as the one that is HEALTHY"
	case healthy && c.GetReport().GetHealth() != api.Health_HEALTH_HEALTHY:
		return text + "not chosen as it is not HEALTHY"
	}
	return text + "not chosen by " + tieBreak(e)
}

// rivals tells whether more than one of the candidates that are equal to the best is HEALTHY: that one goes first.
func rivals(e *api.ExplainResponse) bool {
	n := 0
	for _, c := range e.GetCandidates() {
		if c.GetEqualToBest() && c.GetReport().GetHealth() == api.Health_HEALTH_HEALTHY {
			n++
		}
	}
	return n > 1
}

// tieBreak is how the service's policy chooses among equals; the version of the policy, such as "latency/5%/spread@1",
// tells.
func tieBreak(e *api.ExplainResponse) string {
	version, _, _ := strings.Cut(e.GetPolicyVersion(), "@")
	if i := strings.LastIndexByte(version, '/'); i >= 0 {
		return version[i+1:]
	}
	return "the policy's tie break"
}

func writeRefusal(w *strings.Builder, refusal *api.Refusal) {
	at := ""
	if refusal.GetStage() != "" {
		at = " at stage " + refusal.GetStage()
	}
	fmt.Fprintf(w, "refused     %s%s: %s\n", enum(refusal.GetReason()), at, refusal.GetDetail())
}

func writeChosen(w *strings.Builder, c *api.Chosen) {
	fmt.Fprintf(w, "chosen      %s at %s by %s, %d slot(s)\n", c.GetCsciId(), locator(c.GetLocator()), c.GetEgress(), c.GetSlots())
	writePath(w, "path", c.GetForward(), c.GetForwardMetrics())
	writePath(w, "return", c.GetReverse(), c.GetReverseMetrics())
	for _, p := range []struct {
		name string
		view *api.PacketView
	}{
		{"client sends", c.GetBefore()}, {"ingress sends", c.GetAfter()}, {"instance sends", c.GetAnswer()}, {"client gets", c.GetDelivered()},
	} {
		if p.view != nil {
			writePacket(w, p.name, p.view)
		}
	}
}

func writePacket(w *strings.Builder, name string, v *api.PacketView) {
	fmt.Fprintf(w, "%-15s %s", name, tuple(v.GetTuple()))
	if len(v.GetOuterDestination()) > 0 {
		fmt.Fprintf(w, "  [%s to %s", enum(v.GetEncapsulation()), address(v.GetOuterDestination()))
		if len(v.GetSegments()) > 0 {
			fmt.Fprintf(w, ", segments %s", addresses(v.GetSegments()))
		}
		w.WriteByte(']')
	}
	w.WriteByte('\n')
}

func writePath(w *strings.Builder, name string, p *api.Path, m *api.PathMetrics) {
	if p == nil {
		return
	}
	fmt.Fprintf(w, "%-11s %s, %s, %d hops, segments %s\n", name, strings.Join(p.GetNodes(), " > "), micros(uint64(m.GetDelayUs())), m.GetHops(), addresses(p.GetSegments()))
}
