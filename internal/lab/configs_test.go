package lab_test

import (
	"testing"

	"github.com/margay-net/margay/internal/app/cnma"
	"github.com/margay-net/margay/internal/app/cps"
	"github.com/margay-net/margay/internal/app/csma"
	"github.com/margay-net/margay/internal/app/forwarder"
	"github.com/margay-net/margay/internal/app/sci"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/operator"
	"github.com/margay-net/margay/internal/trust"
)

// TestEveryDaemonAcceptsItsConfiguration loads what Up writes as each program does.
func TestEveryDaemonAcceptsItsConfiguration(t *testing.T) {
	l := up(t, lab.NetworkAlone)
	for name, role := range l.Plan() {
		path := l.ConfigOf(name)
		common, err := loadAs(role, path)
		if err != nil {
			t.Errorf("%s %s: %v", role, name, err)
			continue
		}
		credentials, err := trust.Load(common.TLS)
		if err == nil {
			err = credentials.Require(trust.Role(role), name)
		}
		if err != nil || string(common.Name) != name {
			t.Errorf("%s %s: its name is %q and its certificate: %v", role, name, common.Name, err)
		}
	}
	for _, path := range []string{l.OperatorConfig(), l.ClientConfig("client")} {
		c, err := config.Load[operator.Config](path)
		if err != nil || len(c.Forwarders) != 3 || c.CPS.Name != "cps-1" {
			t.Errorf("%s: %+v, %v", path, c, err)
		}
	}
}

func loadAs(role, path string) (config.Common, error) {
	switch role {
	case "sci":
		c, err := config.Load[sci.Config](path)
		return c.Common, err
	case "csma":
		c, err := config.Load[csma.Config](path)
		return c.Common, err
	case "cnma":
		c, err := cnma.Load(path)
		return c.Common, err
	case "forwarder":
		c, err := config.Load[forwarder.Config](path)
		return c.Common, err
	}
	c, err := cps.Load(path)
	return c.Common, err
}
