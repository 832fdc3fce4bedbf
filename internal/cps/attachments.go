package cps

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/margay-net/margay/cats"
)

// attachment gives a client attachment as its forwarder has it; nil: it has none of that name.
func (f *forwarder) attachment(name string) *cats.ClientAttachment {
	for i := range f.hello.Attachments {
		if f.hello.Attachments[i].Name == name {
			return &f.hello.Attachments[i]
		}
	}
	return nil
}

// Attachments gives the client attachments that an ingress has told of in its present session; nil: it has none. They
// must not be changed.
func (c *Core) Attachments(ingress string) []cats.ClientAttachment {
	if f := c.forwarders[ingress]; f != nil && f.connected {
		return f.hello.Attachments
	}
	return nil
}

// compareAttachments audits where the attachments of a forwarder and those of the catalogue differ, once until that
// changes: clients of such an attachment get no service.
func (c *Core) compareAttachments(f *forwarder) {
	if !f.connected {
		return
	}
	found := c.disagreement(f)
	if found != f.disagreement && found != "" {
		c.audit(Audit{Event: "attachments-disagree", Subject: f.name, Reason: cats.ReasonUnauthorized, Detail: found})
	}
	f.disagreement = found
}

// disagreement tells of the attachments that only the catalogue or only the forwarder has, or that have different
// tenants; empty: there are none.
func (c *Core) disagreement(f *forwarder) string {
	only := make(map[string]string) // tenants by attachment that the forwarder has not shown yet
	for _, a := range c.catalogue.Records().Attachments {
		if a.Ingress == f.name {
			only[a.Name] = a.Tenant
		}
	}
	var differ []string
	for i := range f.hello.Attachments {
		a := &f.hello.Attachments[i]
		tenant, both := only[a.Name]
		delete(only, a.Name)
		switch {
		case !both:
			differ = append(differ, fmt.Sprintf("%s is only in the forwarder's configuration", a.Name))
		case tenant != a.Tenant:
			differ = append(differ, fmt.Sprintf("%s belongs to tenant %s in the catalogue and to %s in the forwarder's configuration", a.Name, tenant, a.Tenant))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(only)) {
		differ = append(differ, fmt.Sprintf("%s is only in the catalogue", name))
	}
	if len(differ) == 0 {
		return ""
	}
	return fmt.Sprintf("clients get no service where the attachments of %s differ: %s", f.name, some(differ))
}

// mostNamed is how many things of a list are named for a person.
const mostNamed = 8

func some[T any](list []T) string {
	var names []string
	for _, v := range list[:min(len(list), mostNamed)] {
		names = append(names, fmt.Sprint(v))
	}
	text := strings.Join(names, ", ")
	if more := len(list) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
