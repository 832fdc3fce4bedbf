package cps

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// catalogueFile is the file of the catalogue.
type catalogueFile struct {
	Services    []service    `yaml:"services"`
	Deployments []deployment `yaml:"deployments"`
	Attachments []attachment `yaml:"attachments"`

	catalogue *catalogue.Catalogue // set by Validate
}

type service struct {
	CSID        cats.CSID              `yaml:"cs_id"`
	Number      uint32                 `yaml:"number"`
	Name        string                 `yaml:"name,omitempty"`
	Version     string                 `yaml:"version"`
	State       catalogue.ServiceState `yaml:"state"`
	GASMode     catalogue.GASMode      `yaml:"gas_mode,omitempty"`
	Addresses   []address              `yaml:"addresses,omitempty"`
	Policy      catalogue.Policy       `yaml:"policy,omitempty"`
	BandPercent uint8                  `yaml:"band_percent,omitempty"`
	TieBreak    catalogue.TieBreak     `yaml:"tie_break,omitempty"`
	Tenants     []config.Name          `yaml:"tenants"`
	Return      returnMode             `yaml:"return,omitempty"`
	Idle        time.Duration          `yaml:"idle,omitempty"` // 0: the default of its protocol
	Hard        time.Duration          `yaml:"hard,omitempty"`
}

type address struct {
	Prefix   netip.Prefix  `yaml:"prefix"`
	Protocol cats.Protocol `yaml:"protocol"`
	Port     uint16        `yaml:"port"`
}

type deployment struct {
	Site    config.Name               `yaml:"site"`
	CSCIID  cats.CSCIID               `yaml:"csci_id"`
	CSID    cats.CSID                 `yaml:"cs_id"`
	Version string                    `yaml:"version"`
	State   catalogue.DeploymentState `yaml:"state"`
	Locator locator                   `yaml:"locator"`
	Egress  []egress                  `yaml:"egress,omitempty"`
}

type locator struct {
	Address  netip.Addr    `yaml:"address"`
	Protocol cats.Protocol `yaml:"protocol"`
	Port     uint16        `yaml:"port"`
}

type egress struct {
	Forwarder config.Name `yaml:"forwarder"`
	SID       netip.Addr  `yaml:"sid"`
}

type attachment struct {
	Ingress config.Name `yaml:"ingress"`
	Name    config.Name `yaml:"name"`
	Tenant  config.Name `yaml:"tenant"`
}

// returnMode tells whether a flow may do without a computed return path.
type returnMode bool

// UnmarshalText reads encap or strict.
func (m *returnMode) UnmarshalText(text []byte) error {
	switch string(text) {
	case "encap":
		*m = false
	case "strict":
		*m = true
	default:
		return errors.New("need encap or strict, have " + string(text))
	}
	return nil
}

const defaultBandPercent = 5

// The idle times of RFC 5382 and RFC 4787.
const (
	idleTCP = 2*time.Hour + 4*time.Minute
	idleUDP = 5 * time.Minute
)

// Defaults sets what holds where the file is silent.
func (s *service) Defaults() { s.BandPercent = defaultBandPercent }

// Validate builds the catalogue; what contradicts is told where it stands.
func (f *catalogueFile) Validate() []config.Problem {
	built, err := catalogue.New(f.records())
	f.catalogue = built
	var contradictions *catalogue.Error
	if !errors.As(err, &contradictions) {
		return nil
	}
	problems := make([]config.Problem, len(contradictions.Problems))
	for i, p := range contradictions.Problems {
		problems[i] = config.At(p.Path, "%s", p.Text)
	}
	return problems
}

func (f *catalogueFile) records() catalogue.Records {
	var r catalogue.Records
	for i := range f.Services {
		r.Services = append(r.Services, f.Services[i].record())
	}
	for i := range f.Deployments {
		r.Deployments = append(r.Deployments, f.Deployments[i].record())
	}
	for _, a := range f.Attachments {
		r.Attachments = append(r.Attachments, catalogue.Attachment{Ingress: string(a.Ingress), Name: string(a.Name), Tenant: string(a.Tenant)})
	}
	return r
}

func (s *service) record() catalogue.ServiceRecord {
	r := catalogue.ServiceRecord{
		CSID: s.CSID, Number: s.Number, Name: s.Name, Version: s.Version, State: s.State, GASMode: s.GASMode, Policy: s.Policy,
		BandPercent: s.BandPercent, TieBreak: s.TieBreak, Tenants: names(s.Tenants), StrictReturn: bool(s.Return), Idle: s.Idle, Hard: s.Hard,
	}
	for _, a := range s.Addresses {
		r.Addresses = append(r.Addresses, catalogue.Address{Prefix: a.Prefix, Protocol: a.Protocol, Port: a.Port})
	}
	if r.Idle == 0 {
		r.Idle = idleTCP
		if len(s.Addresses) > 0 && !slices.ContainsFunc(s.Addresses, func(a address) bool { return a.Protocol != cats.UDP }) {
			r.Idle = idleUDP
		}
	}
	return r
}

func (d *deployment) record() catalogue.Deployment {
	r := catalogue.Deployment{
		Site: string(d.Site), CSCIID: d.CSCIID, CSID: d.CSID, Version: d.Version, State: d.State,
		Locator: cats.Locator{Protocol: d.Locator.Protocol, Address: netip.AddrPortFrom(d.Locator.Address, d.Locator.Port)},
	}
	for _, e := range d.Egress {
		r.Egress = append(r.Egress, catalogue.EgressAttachment{Forwarder: string(e.Forwarder), SID: e.SID})
	}
	return r
}
