package lab

import (
	"github.com/goccy/go-yaml"

	"github.com/margay-net/margay/internal/config"
)

// catalogue is what the C-PS knows of services, deployments and attachments.
func (t *Topology) catalogue() yaml.MapSlice {
	services, deployments, attachments := []yaml.MapSlice{}, []yaml.MapSlice{}, []yaml.MapSlice{}
	for i := range t.Services {
		services = append(services, t.Services[i].record())
	}
	for i := range t.Deployments {
		deployments = append(deployments, t.record(&t.Deployments[i]))
	}
	for _, f := range t.role(Forwarder) {
		for _, a := range f.Attachments {
			attachments = append(attachments, mapping("ingress", string(f.Name), "name", string(a.Name), "tenant", string(a.Tenant)))
		}
	}
	return mapping("services", services, "deployments", deployments, "attachments", attachments)
}

func (s *ServiceSpec) record() yaml.MapSlice {
	addresses := []yaml.MapSlice{}
	for _, a := range s.Addresses {
		addresses = append(addresses, mapping("prefix", a.Prefix.String(), "protocol", a.Protocol.String(), "port", a.Port))
	}
	m := mapping(
		"cs_id", string(s.CSID), "number", s.Number, "name", s.Name, "version", s.Version, "state", "PUBLISHED", "gas_mode", "ceiling",
		"addresses", addresses, "policy", s.Policy, "band_percent", s.BandPercent, "tenants", s.Tenants,
	)
	if s.Idle != 0 {
		m = append(m, mapping("idle", s.Idle.String())...)
	}
	return m
}

func (t *Topology) record(d *Deployment) yaml.MapSlice {
	return mapping(
		"site", string(t.site(d)), "csci_id", string(d.CSCIID), "cs_id", string(d.CSID), "version", t.service(d.CSID).Version, "state", "VALIDATED",
		"locator", mapping("address", d.Locator.Address.String(), "protocol", d.Locator.Protocol.String(), "port", d.Locator.Port),
		"egress", []yaml.MapSlice{mapping("forwarder", string(d.Egress), "sid", d.SID.String())},
	)
}

// measured is what the C-NMA knows of the core: nodes, and links in each direction with their measurements.
func (t *Topology) measured() yaml.MapSlice {
	nodes, links := []yaml.MapSlice{}, []yaml.MapSlice{}
	for _, f := range t.role(Forwarder) {
		nodes = append(nodes, mapping("name", string(f.Name)))
	}
	for _, r := range t.role(Router) {
		nodes = append(nodes, mapping("name", string(r.Name), "sid", r.SID.String()))
	}
	for i := range t.Links {
		l := &t.Links[i]
		if !t.node(l.A.Node).Role.core() || !t.node(l.B.Node).Role.core() {
			continue
		}
		links = append(links, l.measured(l.A.Node, l.B.Node, l.DelayUS))
		if !l.OneWay {
			links = append(links, l.measured(l.B.Node, l.A.Node, l.backDelay()))
		}
	}
	return mapping("nodes", nodes, "links", links)
}

func (l *Link) measured(from, to config.Name, delay uint32) yaml.MapSlice {
	m := mapping("from", string(from), "to", string(to), "delay_us", delay)
	for _, v := range []struct {
		key   string
		value uint32
	}{{"jitter_us", l.JitterUS}, {"loss_ppm", l.LossPPM}, {"bandwidth_kbps", l.BandwidthKbps}, {"te_metric", l.TEMetric}} {
		if v.value != 0 {
			m = append(m, mapping(v.key, v.value)...)
		}
	}
	return m
}
