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

// forbiddenInPure are imports that bring I/O, time, chance, goroutines, telemetry or generated types into a core.
var forbiddenInPure = []string{
	"net/...", "os/...", "io/fs", "io/ioutil", "embed", "syscall/...", "runtime/...", "unsafe", "log/...", "sync/...", "context", "plugin",
	"math/rand/...", "crypto/rand", "crypto/tls", "hash/maphash", "expvar", "flag", "database/...", "testing/...",
	"golang.org/x/sys/...", "golang.org/x/time/...", "google.golang.org/...", "github.com/prometheus/...", "go.etcd.io/...",
	"github.com/cilium/...", "github.com/vishvananda/...", module + "api/...",
}

// allowedInPure are packages of values below forbidden ones.
var allowedInPure = []string{"net/netip"}

// mayImportGenerated are the pure packages whose purpose is the generated types.
var mayImportGenerated = []string{"internal/wire/v1alpha1"}

// generatedIn are the packages that see generated types: where messages come in and go out.
var generatedIn = []string{
	"internal/wire/v1alpha1", "internal/collect/...", "internal/northbound/...", "internal/southbound/...", "internal/journal",
	"internal/app/...", "internal/operator/...", "internal/lab/...", "test/...", "api/...",
}

// adapters are what connects cores to the world, each to one side of it. None imports another: what they share is below.
var adapters = []string{
	"internal/collect", "internal/northbound", "internal/southbound", "internal/topology", "internal/store", "internal/datapath",
	"internal/journal",
}

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
		if !within(path, pure) {
			continue
		}
		for _, i := range p.Imports {
			if impure(path, i) {
				t.Errorf("%s is pure and imports %s", path, i)
			}
		}
		for _, name := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range impurities(t, filepath.Join(p.Dir, name), source) {
				t.Error(fault)
			}
		}
	}
}

func impure(path, imported string) bool {
	generated := within(imported, []string{module + "api/...", "google.golang.org/protobuf/..."})
	if generated && within(path, mayImportGenerated) {
		return false
	}
	return within(imported, forbiddenInPure) && !within(imported, allowedInPure)
}

func TestAdaptersDoNotImportOneAnother(t *testing.T) {
	for _, p := range list(t, "./...") {
		mine := adapterOf(local(p.ImportPath))
		for _, i := range p.Imports {
			if other := adapterOf(local(i)); mine != "" && other != "" && other != mine {
				t.Errorf("%s imports %s: adapters do not know one another", local(p.ImportPath), local(i))
			}
		}
	}
	for _, a := range adapters {
		if len(list(t, "./"+a+"/...")) == 0 {
			t.Errorf("there is no adapter %s", a)
		}
	}
}

// adapterOf gives the adapter that a package is part of.
func adapterOf(path string) string {
	for _, a := range adapters {
		if within(path, []string{a + "/..."}) {
			return a
		}
	}
	return ""
}

func TestGeneratedTypesStayAtTheEdge(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, i := range p.Imports {
			if within(local(i), []string{"api/..."}) && !within(local(p.ImportPath), generatedIn) {
				t.Errorf("%s imports generated types (%s)", local(p.ImportPath), local(i))
			}
		}
	}
}

// impurities lists what a source file does that its imports do not tell.
func impurities(t *testing.T, name string, source []byte) (faults []string) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	clock := "time" // what the file calls the package
	for _, i := range f.Imports {
		if i.Path.Value == `"time"` && i.Name != nil {
			clock = i.Name.Name
		}
	}
	fault := func(at ast.Node, what string) {
		faults = append(faults, fmt.Sprintf("%s: a pure package %s", files.Position(at.Pos()), what))
	}
	if clock == "." {
		fault(f, "imports time into its own names, where nobody sees the clock")
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			fault(n, "starts a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == clock && slices.Contains(impureTime, n.Sel.Name) {
				fault(n, "uses time."+n.Sel.Name)
			}
		}
		return true
	})
	return faults
}

// The checks find what they are for.
func TestImpuritiesAreFound(t *testing.T) {
	for source, want := range map[string]int{
		`import "time"; var d time.Duration`:                                          0,
		`import "time"; var d = time.Now()`:                                           1,
		`import "time"; var now = time.Now`:                                           1,
		`import clock "time"; var d = clock.Since(clock.Time{})`:                      1,
		`import clock "time"; func f(time struct{ Now int }) int { return time.Now }`: 0,
		`import . "time"; var d Duration`:                                             1,
		`import "time"; func f() { go f(); <-time.After(1); time.Sleep(1) }`:          3,
	} {
		if got := impurities(t, "x.go", []byte("package x; "+source)); len(got) != want {
			t.Errorf("%s: %q, want %d", source, got, want)
		}
	}
	for imported, want := range map[string]bool{
		"runtime": true, "runtime/debug": true, "syscall": true, "io/fs": true, "io": false, "hash/maphash": true, "hash/crc32": false,
		"crypto/rand": true, "crypto/sha256": false, "net": true, "net/http": true, "net/netip": false, "os": true, "os/exec": true, "sync/atomic": true,
		"math/rand/v2": true, "math": false, "log/slog": true, "context": true, "google.golang.org/grpc/status": true,
		module + "api/margayv1alpha1": true, module + "cats": false,
	} {
		if got := impure("internal/csma", imported); got != want {
			t.Errorf("a core that imports %s: %t", imported, got)
		}
	}
	if impure("internal/wire/v1alpha1", module+"api/margayv1alpha1") {
		t.Error("the conversion of messages may not see messages")
	}
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
