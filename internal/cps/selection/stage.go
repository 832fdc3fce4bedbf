// Package selection is the joint selection: it filters the candidates of a service by hard constraints, joins each with
// its path view, and ranks what is left by the service's policy (CP sections 5 and 8.2). It is a function of facts to a
// decision; the same facts always give the same decision.
package selection

import "fmt"

// Stage is the filter that removed a candidate. The filters run in the order of the constants.
type Stage uint8

// The stages. StageNone: not removed.
const (
	StageNone          Stage = iota
	StageAuthorization       // the report's source or the tenant is not authorized
	StageVersion             // not the published version, or the service admits nothing new
	StageDeployment          // not VALIDATED, no acknowledged delivery rule, no common encapsulation, other address family
	StageEgress              // no live session with the egress, or its last commit failed a moment ago
	StageFreshness           // no report, or one past its lifetime
	StageHealth              // neither HEALTHY nor DEGRADED
	StageSlots               // fewer slots left than needed
	StageComputing           // a hard computing bound
	StagePath                // no VALID and reachable path view
	StageNetwork             // a hard network bound
	StageRealDelay           // the hard bound on computing time plus network delay
	stageCount
)

// Stages is the number of stages, StageNone included; for arrays indexed by Stage.
const Stages = int(stageCount)

var stageNames = [stageCount]string{
	"none", "authorization", "version", "deployment", "egress-unavailable", "freshness", "health", "slots", "computing",
	"path", "network", "real-delay",
}

// String gives the stage as it stands in API, logs and metrics.
func (s Stage) String() string {
	if s < stageCount {
		return stageNames[s]
	}
	return fmt.Sprintf("invalid(%d)", uint8(s))
}
