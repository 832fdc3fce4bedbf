package datapath

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/margay-net/margay/cats"
)

// TestNumbers compares the numbers that the C sources and Go share, by name.
func TestNumbers(t *testing.T) {
	spec, err := loadProgram()
	must(t, err)
	var reasons *btf.Enum
	must(t, spec.Types.TypeByName("reason", &reasons))
	for _, v := range reasons.Values {
		name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(v.Name, "REASON_")), "_", "-")
		if name == "limit" {
			if last := cats.Reasons()[len(cats.Reasons())-1]; uint64(last) >= v.Value {
				t.Errorf("reason %s is %d, at or above the limit of %d", last, last, v.Value)
			}
			continue
		}
		if r, err := cats.ParseReason(name); err != nil || uint64(r) != v.Value {
			t.Errorf("%s is %d in C; Go: %d, %v", v.Name, v.Value, r, err)
		}
	}
	for _, c := range []struct {
		name  string
		c, Go uint64
	}{
		{"INGRESS_FORWARD", uint64(programBindingKindINGRESS_FORWARD), uint64(IngressForward)},
		{"INGRESS_REVERSE", uint64(programBindingKindINGRESS_REVERSE), uint64(IngressReverse)},
		{"EGRESS_FORWARD", uint64(programBindingKindEGRESS_FORWARD), uint64(EgressForward)},
		{"EGRESS_REVERSE", uint64(programBindingKindEGRESS_REVERSE), uint64(EgressReverse)},
		{"BINDING_KINDS", uint64(programBindingKindBINDING_KINDS), uint64(kindCount)},
		{"ROLE_CLIENT", uint64(programRoleROLE_CLIENT), uint64(RoleClient)},
		{"ROLE_CORE", uint64(programRoleROLE_CORE), uint64(RoleCore)},
		{"ROLE_INSTANCE", uint64(programRoleROLE_INSTANCE), uint64(RoleInstance)},
		{"ROLE_RELEASE", uint64(programRoleROLE_RELEASE), uint64(RoleRelease)},
		{"the outer headers", uint64(len(programPath{}.Outer)), ipv6Octets + srhOctets + 16*MaxSegments},
	} {
		if c.c != c.Go {
			t.Errorf("%s is %d in C, %d in Go", c.name, c.c, c.Go)
		}
	}
	var release *btf.Struct
	must(t, spec.Types.TypeByName("release_header", &release))
	if release.Size != ReleaseOverhead {
		t.Errorf("the release header has %d octets in C, %d in Go", release.Size, ReleaseOverhead)
	}
}
