package docs_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/app/cnma"
	"github.com/margay-net/margay/internal/app/cps"
	"github.com/margay-net/margay/internal/app/csma"
	"github.com/margay-net/margay/internal/app/forwarder"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/app/sci"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/operator"
	"github.com/margay-net/margay/internal/topology/static"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/pki"
)

// file is one of the files that operations.md explains.
type file struct {
	name   string // as the headings of its section end
	source string // directory of the code that reloads it; empty: the page says nothing of reloads
	load   func(directory string) error
	run    func(arguments []string, stdout, stderr io.Writer) int // runs its daemon with these; nil: it is no daemon's
}

var files = []file{
	{"sci.yaml", "sci", loader[sci.Config]("sci.yaml"), sci.Daemon.Execute},
	{"csma.yaml", "csma", loader[csma.Config]("csma.yaml"), csma.Daemon.Execute},
	{"cnma.yaml", "cnma", loader[cnma.Config]("cnma.yaml"), cnma.Daemon.Execute},
	{"topology.yaml", "", func(directory string) error { return second(static.Load(filepath.Join(directory, "topology.yaml"))) }, nil},
	{"cps.yaml", "cps", loader[cps.Config]("cps.yaml"), cps.Daemon.Execute},
	{"catalogue.yaml", "", func(directory string) error { return second(cps.Load(filepath.Join(directory, "cps.yaml"))) }, nil},
	{"forwarder.yaml", "forwarder", loader[forwarder.Config]("forwarder.yaml"), run.Daemon[forwarder.Config]{
		Program: "margay-forwarder", Role: trust.Forwarder, Load: config.Load[forwarder.Config],
	}.Execute},
	{"operator.yaml", "", loader[operator.Config]("operator.yaml"), nil},
}

func second[T any](_ T, err error) error { return err }

func loader[T any](name string) func(string) error {
	return func(directory string) error { return second(config.Load[T](filepath.Join(directory, name))) }
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n# /etc/margay/(\\S+)\n(.*?)```")

// examples gives the example of each file.
func examples(t *testing.T) map[string]string {
	t.Helper()
	page := read(t, "operations.md")
	found := map[string]string{}
	for _, block := range yamlBlock.FindAllStringSubmatch(page, -1) {
		found[block[1]] = block[2]
	}
	if blocks := strings.Count(page, "```yaml"); blocks != len(files) || len(found) != len(files) {
		t.Fatalf("%d YAML examples, %d of them named; there are %d files", blocks, len(found), len(files))
	}
	return found
}

// install writes every example as its file, with certificates for the daemons.
func install(t *testing.T) (directory string) {
	t.Helper()
	directory = t.TempDir()
	if _, err := pki.Init(filepath.Join(directory, "tls"), "example.margay"); err != nil {
		t.Fatal(err)
	}
	for name, content := range examples(t) {
		write(t, filepath.Join(directory, name), content)
	}
	for _, identity := range []string{"sci/agent-a", "csma/csma-1", "cnma/cnma-1", "cps/cps-1", "forwarder/IF-1", "operator/admin"} {
		role, name, _ := strings.Cut(identity, "/")
		if _, err := pki.Issue(filepath.Join(directory, "tls"), trust.Role(role), name, pki.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestExamplesLoad(t *testing.T) {
	directory := install(t)
	for _, f := range files {
		if err := f.load(directory); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		if f.run == nil {
			continue
		}
		var stdout, stderr bytes.Buffer
		if code := f.run([]string{"--config", filepath.Join(directory, f.name), "--check"}, &stdout, &stderr); code != run.ExitOK {
			t.Errorf("%s: --check gives %d: %s", f.name, code, stderr.String())
		}
	}
}
