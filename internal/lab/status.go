package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// DaemonStatus is what a process of a lab is up to.
type DaemonStatus struct {
	Daemon         // its PID is 0 where it does not run
	Ready   bool   // /readyz answers 200
	Lacks   string // conditions that do not hold, on one line
	Answers bool   // whether it answers at all
}

// Status gives every process of the lab of that name, in the order in which they were first started, also of a lab that
// is damaged.
func Status(ctx context.Context, name string) ([]DaemonStatus, error) {
	s, err := stateOf(name)
	if err != nil {
		return nil, err
	}
	all := make([]DaemonStatus, len(s.Daemons))
	for i, d := range s.Daemons {
		all[i].Daemon = *d
		if !d.running() {
			all[i].PID = 0
			continue
		}
		all[i].Ready, all[i].Lacks = d.ready(ctx)
		all[i].Answers = all[i].Ready || all[i].Lacks != ""
	}
	return all, nil
}

// stateOf reads the state of a lab that is up.
func stateOf(name string) (*state, error) {
	if err := checkLabName(name); err != nil {
		return nil, err
	}
	s, err := loadState(layout{name})
	if errors.Is(err, os.ErrNotExist) {
		return nil, notUp(name)
	}
	return s, err
}

func notUp(name string) error {
	return fmt.Errorf("lab %s is not up; `margay lab list` shows those that are", name)
}
