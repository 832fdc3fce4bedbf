// Package trust is who may speak to whom. An identity is the URI SAN spiffe://<domain>/<role>/<name> of a certificate
// that the domain's authority signed. Every channel is mutual TLS 1.3: both ends check the other's chain, validity, key
// usage, domain, role and name during the handshake, and a Guard checks the role again for each method. What is refused
// is audited and counted.
package trust

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/margay-net/margay/cats"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Role is what a program is in the domain.
type Role string

// The roles. Client is a host that announces its requests to an ingress; Operator a person or a tool.
const (
	SCI       Role = "sci"
	CSMA      Role = "csma"
	CNMA      Role = "cnma"
	CPS       Role = "cps"
	PCE       Role = "pce"
	Forwarder Role = "forwarder"
	Operator  Role = "operator"
	Client    Role = "client"
)

// Roles lists every role.
func Roles() []Role { return []Role{SCI, CSMA, CNMA, CPS, PCE, Forwarder, Operator, Client} }

// ParseRole reads the name of a role.
func ParseRole(s string) (Role, error) {
	if slices.Contains(Roles(), Role(s)) {
		return Role(s), nil
	}
	return "", fmt.Errorf("role %q: need one of %v", s, Roles())
}

// Serves tells whether programs of the role accept channels; the others only open them, and their certificates say so.
func (r Role) Serves() bool { return slices.Contains([]Role{CSMA, CPS, PCE, Forwarder}, r) }

// Identity is one program of one domain. It is comparable; make it with NewIdentity or read it from a certificate.
type Identity struct {
	Domain string // SPIFFE trust domain
	Role   Role
	Name   string // as cats.ParseName allows
}

// mostDomain is the SPIFFE-ID standard's limit for a trust domain, in octets.
const mostDomain = 255

// NewIdentity checks the three parts.
func NewIdentity(domain string, role Role, name string) (Identity, error) {
	trustDomain, err := spiffeid.TrustDomainFromString(domain)
	if err != nil || trustDomain.Name() != domain || len(domain) > mostDomain {
		return Identity{}, fmt.Errorf("domain %q: need lower-case letters, digits, dots, dashes and underscores, at most 255", domain)
	}
	if _, err := ParseRole(string(role)); err != nil {
		return Identity{}, err
	}
	if _, err := cats.ParseName("name", name); err != nil {
		return Identity{}, err
	}
	if _, err := spiffeid.FromSegments(trustDomain, string(role), name); err != nil {
		return Identity{}, fmt.Errorf("name %q: %w", name, err)
	}
	return Identity{Domain: domain, Role: role, Name: name}, nil
}

// String gives the URI.
func (i Identity) String() string {
	return "spiffe://" + i.Domain + "/" + string(i.Role) + "/" + i.Name
}

// URL gives the URI as it stands in a certificate.
func (i Identity) URL() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: i.Domain, Path: "/" + string(i.Role) + "/" + i.Name}
}

// CertificateIdentity reads the identity out of a certificate, which must have exactly one URI SAN. It does not check
// who signed it.
func CertificateIdentity(certificate *x509.Certificate) (Identity, error) {
	if n := len(certificate.URIs); n != 1 {
		return Identity{}, fmt.Errorf("certificate %q has %d URI SANs, need exactly one, spiffe://<domain>/<role>/<name>", certificate.Subject, n)
	}
	id, err := spiffeid.FromURI(certificate.URIs[0])
	if err != nil {
		return Identity{}, fmt.Errorf("certificate URI %q is no identity: %w", certificate.URIs[0], err)
	}
	role, name, ok := splitPath(id.Path())
	if !ok {
		return Identity{}, fmt.Errorf("certificate URI %q: need spiffe://<domain>/<role>/<name>", id)
	}
	return NewIdentity(id.TrustDomain().Name(), Role(role), name)
}

func splitPath(path string) (role, name string, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) != 3 || parts[0] != "" {
		return "", "", false
	}
	return parts[1], parts[2], true
}
