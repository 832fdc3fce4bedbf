package v1alpha1

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// The enumerations of the messages and of cats have the same values under the same names, in the same order.
func TestEnumerations(t *testing.T) {
	tests := []struct {
		prefix string
		names  map[int32]string
		name   func(i uint8) string
		from   int32 // message value of the first cats value
	}{
		{"REASON_", pb.Reason_name, func(i uint8) string { return cats.Reason(i).String() }, 0},
		{"HEALTH_", pb.Health_name, func(i uint8) string { return cats.Health(i).String() }, 1},
		{"REPORTING_STATE_", pb.ReportingState_name, func(i uint8) string { return cats.ReportingState(i).String() }, 1},
		{"VALIDITY_", pb.Validity_name, func(i uint8) string { return cats.Validity(i).String() }, 1},
		{"FLOW_STATE_", pb.FlowState_name, func(i uint8) string { return cats.FlowState(i).String() }, 1},
		{"DISPOSITION_", pb.Disposition_name, func(i uint8) string { return cats.Disposition(i).String() }, 1},
		{"UPDATE_KIND_", pb.UpdateKind_name, func(i uint8) string { return cats.UpdateKind(i).String() }, 1},
		{"HALF_", pb.Half_name, func(i uint8) string { return cats.Half(i).String() }, 1},
		{"DISPOSAL_", pb.Disposal_name, func(i uint8) string { return cats.Disposal(i).String() }, 1},
		{"AUTH_ALGORITHM_", pb.AuthAlgorithm_name, func(i uint8) string { return cats.AuthAlgorithm(i).String() }, 0},
		{"PATH_KIND_", pb.PathKind_name, nameOf(map[cats.PathKind]string{
			cats.PathSRv6: "srv6", cats.PathSRMPLS: "sr-mpls", cats.PathTunnel: "tunnel", cats.PathNative: "native",
		}), 1},
		{"PATH_STATUS_", pb.PathStatus_name, nameOf(map[cats.PathStatus]string{
			cats.PathFound: "found", cats.PathNone: "none",
		}), 1},
		{"DISJOINTNESS_", pb.Disjointness_name, nameOf(map[cats.Disjointness]string{
			cats.DisjointNone: "none", cats.DisjointLinks: "link", cats.DisjointNodes: "node",
		}), 0},
		{"BINDING_RESULT_", pb.BindingResult_name, nameOf(map[cats.BindingResult]string{
			cats.BindingInstalled: "installed", cats.BindingRefused: "refused", cats.BindingEnding: "ending",
			cats.BindingRemoved: "removed", cats.BindingCounters: "counters",
		}), 1},
	}
	for _, test := range tests {
		t.Run(test.prefix, func(t *testing.T) {
			for v := int32(1); int(v) < len(test.names); v++ {
				name := test.name(uint8(v - test.from))
				want := test.prefix + strings.ReplaceAll(strings.ToUpper(name), "-", "_")
				if got := test.names[v]; got != want {
					t.Errorf("message value %d is %s, cats has %s", v, got, want)
				}
			}
			if beyond := test.name(uint8(int32(len(test.names)) - test.from)); !strings.HasPrefix(beyond, "invalid") {
				t.Errorf("cats has %q beyond the last message value", beyond)
			}
		})
	}
}

func nameOf[E ~uint8](names map[E]string) func(uint8) string {
	return func(i uint8) string {
		if s, ok := names[E(i)]; ok {
			return s
		}
		return fmt.Sprintf("invalid(%d)", i)
	}
}
