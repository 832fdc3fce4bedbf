package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/margay-net/margay/"

// pure lists the packages that are deterministic functions of their input; a name ending in "..." takes those below too.
var pure = []string{
	"cats", "internal/wire/...", "internal/cps/...", "internal/csma/...", "internal/cnma", "internal/pce/...",
	"internal/forwarder", "internal/simulation", "sci",
}

// forbiddenInPure are imports that bring I/O, time, chance, telemetry or generated types into a core.
var forbiddenInPure = []string{
	"net", "net/http", "os", "os/exec", "log", "log/slog", "sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand",
	"crypto/tls", "google.golang.org/grpc", "google.golang.org/protobuf", "github.com/prometheus", "go.etcd.io",
	"github.com/cilium", "github.com/vishvananda", module + "api",
}

// mayImportGenerated are the pure packages whose purpose is the generated types.
var mayImportGenerated = []string{"internal/wire/v1alpha1"}

// impureTime are the functions of package time that read or wait for a clock.
var impureTime = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// roles never import one another; what they exchange is in cats.
var roles = []string{"sci", "internal/csma", "internal/cnma", "internal/cps", "internal/pce", "internal/forwarder"}

// floor gives the height of a package; an import never goes up.
func floor(p string) int {
	switch {
	case within(p, []string{"cats"}):
		return 0
	case within(p, []string{"internal/wire/...", "api/..."}):
		return 1
	case within(p, []string{"internal/simulation/..."}):
		return 3
	case within(p, pure):
		return 2
	case within(p, []string{"internal/app/privileges", "internal/app/run"}):
		return 3
	case within(p, []string{"internal/app/...", "internal/lab/...", "internal/operator/..."}):
		return 4
	case within(p, []string{"cmd/...", "test/..."}):
		return 5
	}
	return 3
}

type pkg struct {
	ImportPath  string
	Dir         string
	Doc         string
	GoFiles     []string
	TestGoFiles []string
	Imports     []string
	Deps        []string
	Standard    bool
	Module      *struct{ Path string }
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,Imports,Deps,Standard,Module"}, args...)...)
	cmd.Dir = "../.."
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, complaint.String())
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func within(path string, patterns []string) bool {
	for _, p := range patterns {
		base, below := strings.CutSuffix(p, "/...")
		if path == base || below && strings.HasPrefix(path, base+"/") {
			return true
		}
	}
	return false
}

func local(path string) string { return strings.TrimPrefix(path, module) }

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range list(t, "./...") {
		if p.Doc == "" && len(p.GoFiles) > 0 && !strings.Contains(p.ImportPath, "/api/") {
			t.Errorf("%s has no package comment", local(p.ImportPath))
		}
	}
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, i := range p.Imports {
			if strings.HasPrefix(i, module) && floor(local(i)) > floor(local(p.ImportPath)) {
				t.Errorf("%s (floor %d) imports %s (floor %d)", local(p.ImportPath), floor(local(p.ImportPath)), local(i), floor(local(i)))
			}
		}
	}
}

func TestRolesDoNotImportOneAnother(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, mine := range roles {
			if !within(local(p.ImportPath), []string{mine + "/..."}) {
				continue
			}
			for _, other := range roles {
				for _, i := range p.Imports {
					if other != mine && within(local(i), []string{other + "/..."}) {
						t.Errorf("%s imports %s: roles share only the vocabulary", local(p.ImportPath), local(i))
					}
				}
			}
		}
	}
}

func TestPureCoresArePure(t *testing.T) {
	for _, p := range list(t, "./...") {
		path := local(p.ImportPath)
		if !within(path, pure) || adapterBelowCore(path) {
			continue
		}
		for _, i := range p.Imports {
			for _, f := range forbiddenInPure {
				if generated := strings.HasPrefix(i, module+"api") || strings.HasPrefix(i, "google.golang.org/protobuf"); generated && within(path, mayImportGenerated) {
					continue
				}
				if i == f || strings.Contains(f, ".") && strings.HasPrefix(i, f) {
					t.Errorf("%s is pure and imports %s", path, i)
				}
			}
		}
		for _, name := range p.GoFiles {
			checkPureFile(t, filepath.Join(p.Dir, name))
		}
	}
}

// adapterBelowCore names the adapters that live in a core's folder because they serve it alone.
func adapterBelowCore(path string) bool {
	return within(path, []string{"internal/forwarder/journal"})
}

func checkPureFile(t *testing.T, name string) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: a pure package starts a goroutine", files.Position(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(impureTime, n.Sel.Name) {
				t.Errorf("%s: a pure package uses time.%s", files.Position(n.Pos()), n.Sel.Name)
			}
		}
		return true
	})
}

var update = flag.Bool("update", false, "write the lists of linked modules anew")

// TestLinkedModules compares the third-party modules of each program with testdata/<program>.modules, so that a new one
// is a decision and not an accident. `go test ./internal/archtest -update` writes the lists.
func TestLinkedModules(t *testing.T) {
	programs, err := filepath.Glob("../../cmd/*")
	if err != nil || len(programs) == 0 {
		t.Fatalf("no programs under cmd: %v", err)
	}
	for _, dir := range programs {
		program := filepath.Base(dir)
		t.Run(program, func(t *testing.T) {
			got := linked(t, "./cmd/"+program)
			golden := filepath.Join("testdata", program+".modules")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s links\n%swanted by %s\n%s", program, got, golden, want)
			}
		})
	}
}

func TestForwarderLinksNoDatabase(t *testing.T) {
	for _, m := range strings.Split(linked(t, "./cmd/margay-forwarder"), "\n") {
		if strings.HasPrefix(m, "go.etcd.io") {
			t.Errorf("the privileged forwarder links %s", m)
		}
	}
}

func linked(t *testing.T, program string) string {
	t.Helper()
	modules := map[string]bool{}
	for _, p := range list(t, "-deps", program) {
		if !p.Standard && p.Module != nil && p.Module.Path+"/" != module {
			modules[p.Module.Path] = true
		}
	}
	var names []string
	for m := range modules {
		names = append(names, m)
	}
	slices.Sort(names)
	return fmt.Sprintln(strings.Join(names, "\n"))
}
